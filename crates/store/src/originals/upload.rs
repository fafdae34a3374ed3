//! New originals on their way to a server: compressed for it, and removed here once they are there.

use std::fs::File;
use std::io::{self, Read, Seek};

use azureal_core::{OpenOriginal, Original, StoreError, Uuid};
use azureal_files::Folder;
use rustix::fs::OFlags;
use tracing::warn;

use super::mask::{Mask, Masked};
use super::name::{NewName, PackedName};
use super::pack::{framed, pack, pack_reader, read_header};
use super::reader::OutputReader;
use super::{FileOriginals, NEW, create_in, open_parts, pack_new, remove_new, write_whole};

/// The largest original that is uploaded, compressed, in bytes.
pub(crate) const LARGEST_UPLOAD: u64 = 64 << 20;

impl FileOriginals {
    /// Puts a copy of another store's original, to be uploaded.
    pub(crate) fn put_new_copy(
        &self,
        session: Uuid,
        original: &Original,
        content: OpenOriginal,
    ) -> Result<(), StoreError> {
        if !self.takes_new {
            return Ok(());
        }
        let name = NewName { session, packed: PackedName::of(original) };
        self.at((|| {
            name.packed.check()?;
            let into = create_in(&self.create()?, NEW)?;
            let OpenOriginal { header, output } = content;
            // The header last: without it, this is not uploaded.
            write_new(&into, &name.output(), &mut OutputReader::new(output))?;
            write_new(&into, &name.header(), &mut framed(header).as_bytes())?;
            into.sync()
        })())
    }

    /// Uploads the new originals with `send`. An original that is too large stays here, and so does one for which `send` returns
    /// false. Returns at once if another process does it.
    pub(crate) fn upload(
        &self,
        mask: Option<&Mask>,
        mut send: impl FnMut(Uuid, &Original, File) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        self.finish_each(|folder, new, name| {
            if !self.takes_new {
                return Ok(());
            }
            let packed = self.at(pack_unnamed(new, name, mask))?;
            let bytes = self.at(packed.metadata())?.len();
            let original = name.packed.clone().original(bytes);
            if bytes > LARGEST_UPLOAD {
                let (session, run) = (name.session, &name.packed.run);
                warn!(%session, run, bytes, "an original is too large for the server; it stays on this machine");
                return self.at(pack_new(folder, new, name));
            }
            if !send(name.session, &original, packed)? {
                return Ok(());
            }
            self.at(remove_new(new, name).and_then(|()| new.sync()))
        })
    }
}

fn write_new(into: &Folder, name: &str, content: &mut dyn Read) -> io::Result<()> {
    write_whole(into, name, &format!("{name}.tmp"), |mut file| io::copy(content, &mut file).map(drop))
}

/// Compresses a new original into a file without a name, so that a crash leaves nothing.
fn pack_unnamed(new: &Folder, name: &NewName, mask: Option<&Mask>) -> io::Result<File> {
    let unfinished = format!("{}.tmp", name.packed.run);
    new.remove(unfinished.as_ref())?;
    let mut file = new.create_file(unfinished.as_ref(), OFlags::RDWR)?;
    new.remove(unfinished.as_ref())?;
    let (header, output) = open_parts(new, name)?;
    match mask {
        None => pack(header, output, &file)?,
        Some(mask) => {
            // The output gets another length, which must not look like a loss.
            let bytes = new.size(name.output().as_ref()) + new.size(name.more().as_ref());
            let masked = format!("{}{{\"masked\":{{\"bytes\":{bytes}}}}}\n", read_header(header)?);
            let header = framed(masked);
            let content = header.as_bytes().chain(output);
            pack_reader(&mut Masked::new(content, Mask::clone(mask)), &file)?;
        }
    }
    file.rewind()?;
    Ok(file)
}
