//! The cells of a frame, as ratatui draws them.

use std::convert::Infallible;

use ratatui::backend::{Backend, ClearType, WindowSize};
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::{Position, Rect, Size};

/// Keeps the cells that ratatui draws. [`Screen`](super::encode::Screen) writes them.
#[derive(Debug)]
pub(super) struct Canvas {
    pub(super) cells: Buffer,
    /// The position of the cursor; `None` if it is hidden.
    pub(super) cursor: Option<Position>,
    position: Position,
}

impl Canvas {
    pub(super) fn new((columns, rows): (u16, u16)) -> Self {
        Self {
            cells: Buffer::empty(Rect::new(0, 0, columns, rows)),
            cursor: None,
            position: Position::ORIGIN,
        }
    }
}

impl Backend for Canvas {
    type Error = Infallible;

    fn draw<'a, I>(&mut self, content: I) -> Result<(), Infallible>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        for (x, y, cell) in content {
            if let Some(place) = self.cells.cell_mut((x, y)) {
                place.clone_from(cell);
            }
        }
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
        self.cells.reset();
        Ok(())
    }

    fn clear_region(&mut self, _: ClearType) -> Result<(), Infallible> {
        self.clear()
    }

    fn size(&self) -> Result<Size, Infallible> {
        Ok(self.cells.area.as_size())
    }

    fn window_size(&mut self) -> Result<WindowSize, Infallible> {
        Ok(WindowSize { columns_rows: self.cells.area.as_size(), pixels: Size::default() })
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}
