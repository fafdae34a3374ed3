//! Passwords from a file like `~/.pgpass`: `host:port:database:user:password`, one login a line.

/// The key of a password.
pub(super) struct Login<'a> {
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) database: &'a str,
    pub(super) user: &'a str,
}

/// Returns the password of the first line that fits.
pub(super) fn find(text: &str, login: &Login<'_>) -> Option<String> {
    let port = login.port.to_string();
    let wanted = [login.host, &port, login.database, login.user];
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = fields(line);
        let (password, named) = fields.split_last()?;
        let fits =
            named.len() == wanted.len() && named.iter().zip(wanted).all(|(it, wanted)| it.fits(wanted));
        fits.then(|| password.text.clone())
    })
}

/// One field of a line.
#[derive(Default)]
struct Field {
    text: String,
    /// Whether a `*` in it was written as `\*`.
    is_escaped: bool,
}

impl Field {
    fn fits(&self, wanted: &str) -> bool {
        (self.text == "*" && !self.is_escaped) || self.text == wanted
    }
}

/// Parts a line at its colons. `\:` and `\\` are a colon and a backslash.
fn fields(line: &str) -> Vec<Field> {
    let mut fields = vec![Field::default()];
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        // The password is the last, and may not hold an open colon: what follows one is another field.
        if char == ':' {
            fields.push(Field::default());
            continue;
        }
        let Some(field) = fields.last_mut() else { continue };
        match (char, char == '\\') {
            (_, true) => {
                field.is_escaped = true;
                field.text.extend(chars.next());
            }
            (char, false) => field.text.push(char),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let file = "# h:5432:d:u:commented\n\
                    other:5432:d:u:wrong\n\
                    h:5432:d:u2:p\\:2\\\\\n\
                    *:*:*:u:any\n\
                    h:5432:d:u:too late\n\
                    broken";
        let find = |host: &str, user: &str| find(file, &Login { host, port: 5432, database: "d", user });
        assert_eq!(find("h", "u").as_deref(), Some("any"));
        assert_eq!(find("h", "u2").as_deref(), Some("p:2\\"));
        assert_eq!(find("h", "nobody"), None);
    }
}
