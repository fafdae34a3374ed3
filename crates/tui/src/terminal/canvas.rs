//! The cells of a frame, as ratatui draws them.

use std::convert::Infallible;

use ratatui::backend::{Backend, ClearType, WindowSize};
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::{Position, Rect, Size};
use ratatui::{Frame, Terminal};

/// The cells of a frame. [`Screen`](super::encode::Screen) writes them.
#[derive(Debug)]
pub(super) struct Canvas {
    terminal: Terminal<Surface>,
    cells: Buffer,
}

impl Canvas {
    pub(super) fn new((columns, rows): (u16, u16)) -> Self {
        let area = Rect::new(0, 0, columns, rows);
        let Ok(terminal) =
            Terminal::new(Surface { size: area.as_size(), cursor: None, position: Position::ORIGIN });
        Self { terminal, cells: Buffer::empty(area) }
    }

    /// Returns the columns and rows.
    pub(super) fn size(&self) -> (u16, u16) {
        (self.cells.area.width, self.cells.area.height)
    }

    /// Draws a frame. Returns its cells, and the position of the cursor if it is shown.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> (&Buffer, Option<Position>) {
        let Ok(frame) = self.terminal.draw(draw);
        // The whole frame: the changes that a backend is told of leave out the cells behind wide glyphs.
        self.cells.clone_from(frame.buffer);
        (&self.cells, self.terminal.backend().cursor)
    }
}

/// What ratatui draws on: it has a size and a cursor.
#[derive(Debug)]
struct Surface {
    size: Size,
    /// The position of the cursor; `None` if it is hidden.
    cursor: Option<Position>,
    position: Position,
}

impl Backend for Surface {
    type Error = Infallible;

    fn draw<'a, I>(&mut self, _: I) -> Result<(), Infallible>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        Ok(())
    }

    fn hide_cursor(&mut self) -> Result<(), Infallible> {
        self.cursor = None;
        Ok(())
    }

    fn show_cursor(&mut self) -> Result<(), Infallible> {
        self.cursor = Some(self.position);
        Ok(())
    }

    fn get_cursor_position(&mut self) -> Result<Position, Infallible> {
        Ok(self.position)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> Result<(), Infallible> {
        self.position = position.into();
        if self.cursor.is_some() {
            self.cursor = Some(self.position);
        }
        Ok(())
    }

    fn clear(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    fn clear_region(&mut self, _: ClearType) -> Result<(), Infallible> {
        self.clear()
    }

    fn size(&self) -> Result<Size, Infallible> {
        Ok(self.size)
    }

    fn window_size(&mut self) -> Result<WindowSize, Infallible> {
        Ok(WindowSize { columns_rows: self.size, pixels: Size::default() })
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}
