//! Keys and tokens that can be recognised by their shape.

use std::ops::Range;
use std::sync::OnceLock;

use memchr::memmem;
use regex::Regex;

use super::guard;

/// A value in a frame that is no secret is looked at again for the shapes in it, if it is no longer than this. A longer
/// one would take time that is not linear.
const LOOKED_AT_AGAIN: usize = 512;

/// How far before an argument its command is looked for, in bytes.
const LONGEST_COMMAND: usize = 1024;

/// A kind of secret.
struct Shape {
    label: &'static str,
    /// A regular expression of ASCII. If it has a group, only the group is masked.
    pattern: &'static str,
    guard: Guard,
}

/// What else must be true of a match.
#[derive(Clone, Copy)]
enum Guard {
    /// The shape is enough.
    None,
    /// It must look drawn by chance.
    Random,
    /// It must not stand for another value.
    NoPlaceholder,
    /// It must have letters and digits, or look random.
    Mixed,
    /// It must be an argument of `curl` or `wget`, and not stand for another value.
    Argument,
}

const fn sure(label: &'static str, pattern: &'static str) -> Shape {
    Shape { label, pattern, guard: Guard::None }
}

const fn random(label: &'static str, pattern: &'static str) -> Shape {
    Shape { label, pattern, guard: Guard::Random }
}

/// Most shapes. Of two that begin at the same place, the first counts.
const SHAPES: &[Shape] = &[
    // Clouds.
    sure("aws access key", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b"),
    sure("aws session token", r"(?:IQoJb3JpZ2lu|FwoGZXIvYXdz|FQoGZXIvYXdz)[A-Za-z0-9+/=_-]{80,}"),
    random("aws bedrock key", r"ABSK[A-Za-z0-9+/]{60,}={0,2}"),
    sure("google api key", r"AIza[A-Za-z0-9_-]{35}"),
    sure("google client secret", r"GOCSPX-[A-Za-z0-9_-]{24,}"),
    sure("google access token", r"ya29\.[A-Za-z0-9_.-]{20,}"),
    random("google refresh token", r"1//0[A-Za-z0-9_-]{30,}"),
    sure("azure client secret", r"[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}"),
    sure("azure devops token", r"[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}\b"),
    random("azure storage key", r"(?i:AccountKey|SharedAccessKey)=([A-Za-z0-9+/]{40,}={0,2})"),
    random("azure signature", r"(?:[?&]|\\u0026)sig=([A-Za-z0-9%+/=]{20,})"),
    sure("digitalocean token", r"do[opr]_v1_[a-f0-9]{64}\b"),
    sure("databricks token", r"dapi[a-f0-9]{32}(?:-[0-9])?\b"),
    sure("heroku key", r"HRKU-[A-Za-z0-9_-]{36,}"),
    sure("flyio token", r"fm[12][ar]?_[A-Za-z0-9+/=,_-]{60,}"),
    sure("netlify token", r"nf[pcobu]_[A-Za-z0-9]{36,}"),
    sure("supabase key", r"(?:sbp_[a-f0-9]{40}\b|sb_secret_[A-Za-z0-9_-]{20,})"),
    sure("planetscale token", r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{32,}"),
    sure("cloudflare key", r"v1\.0-[a-f0-9]{24}-[a-f0-9]{100,}"),
    sure("tailscale key", r"tskey-[a-z]+-[A-Za-z0-9]+-[A-Za-z0-9]{20,}"),
    sure("terraform token", r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,}"),
    sure("pulumi token", r"pul-[a-f0-9]{40}\b"),
    sure("vault token", r"hv[sbr]\.[A-Za-z0-9_-]{24,}"),
    sure("doppler token", r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]+\.)?[A-Za-z0-9]{40,}"),
    sure("age key", r"AGE-SECRET-KEY-1[A-Z0-9]{58}\b"),
    // Code and packages.
    sure("github token", r"(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{50,})"),
    sure(
        "gitlab token",
        r"(?:gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat)-[A-Za-z0-9_.-]{20,}|GR1348941[A-Za-z0-9_-]{20,})",
    ),
    sure("bitbucket token", r"AT(?:BB[A-Za-z0-9]{24,}|CTT3[A-Za-z0-9_=-]{60,})"),
    sure("atlassian token", r"ATATT3[A-Za-z0-9_=-]{60,}"),
    sure("npm token", r"npm_[A-Za-z0-9]{36}\b"),
    sure("pypi token", r"pypi-AgE[A-Za-z0-9_-]{50,}"),
    sure("rubygems key", r"rubygems_[a-f0-9]{48}\b"),
    random("crates.io token", r"cio[A-Za-z0-9]{32}\b"),
    sure("docker token", r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{27,}"),
    sure("jfrog token", r"(?:AKCp[A-Za-z0-9]{60,}|cmVmdGtuO[A-Za-z0-9]{50,})"),
    sure("buildkite token", r"bkua_[a-f0-9]{40}\b"),
    sure("circleci token", r"CCIPAT_[A-Za-z0-9]{20,}_[a-f0-9]{40}\b"),
    sure("postman key", r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}\b"),
    sure("sentry token", r"sntry[su]_[A-Za-z0-9+/=_-]{40,}"),
    // Models.
    sure("anthropic key", r"sk-ant-[a-z0-9]+-[A-Za-z0-9_-]{32,}"),
    sure("openrouter key", r"sk-or-v1-[a-f0-9]{64}\b"),
    sure("openai key", r"sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{32,}"),
    sure("openai key", r"sk-[A-Za-z0-9]{20,}T3BlbkFJ[A-Za-z0-9]{20,}"),
    random("api key", r"sk-[A-Za-z0-9]{32,}\b"),
    sure("hugging face token", r"(?:hf|api_org)_[A-Za-z]{34}\b"),
    sure("groq key", r"gsk_[A-Za-z0-9]{48,}"),
    sure("xai key", r"xai-[A-Za-z0-9]{70,}"),
    sure("perplexity key", r"pplx-[A-Za-z0-9]{40,}"),
    sure("replicate token", r"r8_[A-Za-z0-9]{37}\b"),
    sure("nvidia key", r"nvapi-[A-Za-z0-9_-]{60,}"),
    sure("langsmith key", r"lsv2_(?:pt|sk)_[a-f0-9]{32}_[a-f0-9]{10}\b"),
    random("elevenlabs key", r"sk_[a-f0-9]{48}\b"),
    // Services.
    sure("slack token", r"xox[abeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{20,}"),
    sure("slack token", r"xapp-[0-9]-[A-Z0-9]+-[0-9]+-[A-Za-z0-9]{32,}"),
    sure("slack webhook", r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9/_-]{30,})"),
    sure("discord webhook", r"discord(?:app)?\.com/api/webhooks/([0-9]{15,20}/[A-Za-z0-9_-]{50,})"),
    random("discord token", r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,38}"),
    sure("telegram token", r"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}\b"),
    sure("stripe key", r"(?:[sr]k|pk)_(?:live|test)_[A-Za-z0-9]{20,}"),
    random("webhook secret", r"whsec_[A-Za-z0-9+/=]{24,}"),
    sure("square token", r"sq0(?:atp|csp|idp)-[A-Za-z0-9_-]{22,}"),
    sure("shopify token", r"shp(?:at|ca|pa|ss|ua)_[a-fA-F0-9]{32}\b"),
    sure("razorpay key", r"rzp_(?:live|test)_[A-Za-z0-9]{14,}"),
    sure("sendgrid key", r"SG\.[A-Za-z0-9_-]{20,24}\.[A-Za-z0-9_-]{39,50}"),
    sure("twilio key", r"(?:SK|AC)[a-f0-9]{32}\b"),
    sure("mailgun key", r"(?:key-[a-f0-9]{32}\b|[a-f0-9]{32}-[a-f0-9]{8}-[a-f0-9]{8}\b)"),
    sure("mailchimp key", r"[a-f0-9]{32}-us[0-9]{1,2}\b"),
    sure("brevo key", r"xkeysib-[a-f0-9]{64}-[A-Za-z0-9]{16}\b"),
    sure("linear key", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}"),
    sure("notion token", r"(?:ntn_[A-Za-z0-9]{40,}|secret_[A-Za-z0-9]{43}\b)"),
    sure("airtable token", r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}\b"),
    sure("figma token", r"fig[duo][rh]?_[A-Za-z0-9_-]{38,}"),
    sure("grafana token", r"(?:glsa_[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}\b|glc_[A-Za-z0-9+/=]{32,})"),
    sure("new relic key", r"NR(?:AK|RA|II|JS)-[A-Za-z0-9]{18,}"),
    sure("dynatrace token", r"dt0[a-z][0-9]{2}\.[A-Z0-9]{24}\.[A-Z0-9]{64}\b"),
    random("facebook token", r"EAA[A-Za-z0-9]{80,}"),
    random("resend key", r"re_[A-Za-z0-9]{8}_[A-Za-z0-9]{20,}"),
    // Of every service.
    Shape {
        label: "authorization",
        pattern: r#"(?i:authorization)(?:\\*["'`])?[ \t]{0,4}[:=][ \t]{0,4}(?:\\*["'`])?(?:[A-Za-z][A-Za-z0-9-]*[ \t]+)?([^\s"'`\\:=][^\s"'`\\]{7,})"#,
        guard: Guard::Mixed,
    },
    random("bearer token", r"(?i:bearer)(?:[ \t]+|%20|\+)([A-Za-z0-9._~+/=-]{16,})"),
    Shape {
        label: "password",
        pattern: r#"(?i:identified by|with password|encrypted password)[ \t]+'([^'\s]{4,})'"#,
        guard: Guard::NoPlaceholder,
    },
    Shape {
        label: "password",
        pattern: r#"machine[ \t]+[^\s]+[ \t]+login[ \t]+[^\s]+[ \t]+password[ \t]+([^\s"'`\\]{4,})"#,
        guard: Guard::NoPlaceholder,
    },
    // What need not begin like a word. These are last: `Together::new` counts on that.
    Shape {
        label: "password",
        pattern: r#"://[^\s:@/?#"'`\\<>]*:([^\s@/"'`\\<>]+)@"#,
        guard: Guard::NoPlaceholder,
    },
    Shape {
        label: "password",
        pattern: r#"<(?i:(?:[a-z]+:)?[a-z_-]*(?:password|passwd|secret|token|api-?key)>)([^<\s]{4,})</"#,
        guard: Guard::NoPlaceholder,
    },
    Shape {
        label: "password",
        pattern: r#"--(?i:(?:[a-z0-9]+-)*(?:password|passwd|passphrase|secret|token|api-?key|access-key))[ \t]+["']?([^\s"'`\\]{6,})"#,
        guard: Guard::Mixed,
    },
    Shape {
        label: "password",
        pattern: r#"-(?:u|-user)[ \t]+["']?[^\s:"']+:([^\s"'`\\]{4,})"#,
        guard: Guard::Argument,
    },
];

/// Shapes that can begin many times before the first one is matched or rejected. Secrets of other shapes can be in them. Looked for
/// together, each of those would cost a search to the end of the text.
const PENDING: &[Shape] = &[
    sure("mapbox token", r"sk\.eyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}"),
    sure("json web token", r"eyJ[A-Za-z0-9_-]{10,}\.(?:eyJ)?[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*"),
];

/// Every shape.
pub(super) struct Shapes([Together; 2]);

impl Shapes {
    pub(super) fn new() -> Result<Self, regex::Error> {
        Ok(Self([Together::new(SHAPES)?, Together::new(PENDING)?]))
    }

    /// Finds secrets of every shape.
    pub(super) fn find(&self, text: &str, mut take: impl FnMut(Range<usize>, &'static str)) {
        for together in &self.0 {
            together.find(text, &mut take);
        }
    }
}

/// Several shapes as one regular expression.
struct Together {
    shapes: &'static [Shape],
    regex: Regex,
    /// For each shape the number of its group, and whether the next group is inside of it.
    groups: Vec<(usize, bool)>,
}

impl Together {
    fn new(shapes: &'static [Shape]) -> Result<Self, regex::Error> {
        // A word begins here, or a part of a name; in JSON also after the letter of an escape sequence, and in a URL after a character in hex.
        let mut pattern = String::from(r"(?:\b|_|%[0-9a-fA-F]{2}|\\[nrtbf]|\\u[0-9a-fA-F]{4})(?:");
        let mut groups = Vec::with_capacity(shapes.len());
        let mut next = 1;
        let mut are_words = true;
        for (index, shape) in shapes.iter().enumerate() {
            let has_inner = has_group(shape.pattern);
            let is_word = !shape.pattern.starts_with(['-', '<', ':']);
            if are_words && !is_word {
                pattern.push(')');
            }
            are_words &= is_word;
            if index > 0 {
                pattern.push('|');
            }
            pattern.extend(["(", shape.pattern, ")"]);
            groups.push((next, has_inner));
            next += 1 + usize::from(has_inner);
        }
        if are_words {
            pattern.push(')');
        }
        Ok(Self { shapes, regex: Regex::new(&of_ascii(&pattern))?, groups })
    }

    fn find(&self, text: &str, take: &mut impl FnMut(Range<usize>, &'static str)) {
        let mut at = 0;
        while let Some(whole) = self.regex.find_at(text, at) {
            at = whole.end();
            let Some(captures) = self.regex.captures_at(text, whole.start()) else { continue };
            let matched = self.groups.iter().zip(self.shapes).find_map(|((group, has_inner), shape)| {
                let outer = captures.get(*group)?;
                Some((shape, has_inner, if *has_inner { captures.get(group + 1)? } else { outer }))
            });
            let Some((shape, has_inner, secret)) = matched else { continue };
            let is_secret = match shape.guard {
                Guard::None => true,
                Guard::Random => guard::is_random(secret.as_str(), 16),
                Guard::NoPlaceholder => !guard::is_placeholder(secret.as_str()),
                Guard::Mixed => is_mixed_secret(secret.as_str()),
                Guard::Argument => {
                    is_argument(text, whole.start()) && !guard::is_placeholder(secret.as_str())
                }
            };
            if is_secret {
                take(secret.range(), shape.label);
            } else if *has_inner && secret.len() <= LOOKED_AT_AGAIN {
                at = secret.start();
            }
        }
    }
}

/// Says whether a value has letters and digits, or looks random otherwise, and is no code.
fn is_mixed_secret(value: &str) -> bool {
    let has = |is: fn(&u8) -> bool| value.bytes().any(|byte| is(&byte));
    let is_code = value.contains(['(', ')', '[', ']', '{', '<', '>']);
    let is_mixed = has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic);
    !is_code && !guard::is_placeholder(value) && (is_mixed || guard::is_random(value, 8))
}

/// Says whether an argument of `curl` or `wget` begins here.
fn is_argument(text: &str, start: usize) -> bool {
    let before = text.as_bytes().get(start.saturating_sub(LONGEST_COMMAND)..start).unwrap_or_default();
    let begin = before.iter().rposition(|byte| b"\n\"'`\\".contains(byte)).map_or(0, |end| end + 1);
    let command = before.get(begin..).unwrap_or_default();
    // In JSON, a line begins after the letter of an escape sequence.
    let is_letter = begin > 0 && before.get(begin - 1) == Some(&b'\\');
    let is_whole = |at: usize| command.get(at + 4).is_some_and(|byte| !byte.is_ascii_alphanumeric());
    let is_begin = |at: usize| match at.checked_sub(1) {
        None => true,
        Some(0) if is_letter => true,
        Some(previous) => {
            command.get(previous).is_some_and(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_')
        }
    };
    command.last().is_some_and(|byte| matches!(byte, b' ' | b'\t'))
        && ["curl", "wget"]
            .iter()
            .any(|name| memmem::find_iter(command, name).any(|at| is_begin(at) && is_whole(at)))
}

/// Makes word boundaries and case of ASCII letters alone, which is faster.
pub(super) fn of_ascii(pattern: &str) -> String {
    pattern.replace(r"\b", r"(?-u:\b)").replace("(?i:", "(?i-u:")
}

fn has_group(pattern: &str) -> bool {
    let bytes = pattern.as_bytes();
    bytes.windows(2).enumerate().any(|(at, pair)| {
        let is_escaped = at > 0 && bytes.get(at - 1) == Some(&b'\\');
        pair.first() == Some(&b'(') && pair.get(1) != Some(&b'?') && !is_escaped
    })
}

/// Returns the passwords of the URLs in a text.
pub(super) fn passwords_in_urls(text: &str) -> impl Iterator<Item = &str> {
    static URL: OnceLock<Option<Regex>> = OnceLock::new();
    let url = URL.get_or_init(|| Regex::new(r"://[^\s:@/]*:([^\s@/]+)@").ok());
    url.iter()
        .flat_map(move |url| url.captures_iter(text))
        .filter_map(|captures| Some(captures.get(1)?.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_that_are_no_words_are_last() {
        assert!(SHAPES.is_sorted_by_key(|shape| shape.pattern.starts_with(['-', '<', ':'])));
    }

    #[test]
    fn a_shape_has_at_most_one_group() {
        for shape in SHAPES.iter().chain(PENDING) {
            let groups = Regex::new(&of_ascii(shape.pattern)).unwrap().captures_len() - 1;
            assert_eq!(groups, usize::from(has_group(shape.pattern)), "{}", shape.label);
        }
    }
}
