//! Sixty-odd kinds of secrets. They are put together here, so that no file of the repository has one that a scanner of
//! repositories would report.

use crate::chance::Chance;

const DIGITS: &str = "0123456789";
const HEX: &str = "0123456789abcdef";
const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const WORD: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const URL_SAFE: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const BASE64: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const TYPED: &str = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789!%*+-";

/// A kind of secret: the variable that usually holds it, and how it is made.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) variable: &'static str,
    /// Literal texts, and characters that are drawn.
    parts: &'static [Part],
}

#[derive(Clone, Copy)]
enum Part {
    Text(&'static str),
    Drawn(&'static str, usize),
}

use Part::{Drawn, Text};

impl Kind {
    /// Draws a secret of this kind.
    pub(crate) fn draw(&self, chance: &mut Chance) -> String {
        let mut secret = String::new();
        for part in self.parts {
            match part {
                Text(text) => secret.push_str(text),
                Drawn(alphabet, length) => secret.push_str(&chance.draw(alphabet, *length)),
            }
        }
        secret
    }

    /// Says whether the secret is a URL, which stands for itself wherever it is.
    pub(crate) fn is_url(&self) -> bool {
        matches!(self.parts, [Text(text), ..] if text.contains("://"))
    }
}

const fn kind(name: &'static str, variable: &'static str, parts: &'static [Part]) -> Kind {
    Kind { name, variable, parts }
}

pub(crate) const KINDS: &[Kind] = &[
    kind("aws access key", "AWS_ACCESS_KEY_ID", &[Text("AKIA"), Drawn(UPPER, 16)]),
    kind("aws secret key", "AWS_SECRET_ACCESS_KEY", &[Drawn(BASE64, 40)]),
    kind("aws session token", "AWS_SESSION_TOKEN", &[Text("IQoJb3JpZ2lu"), Drawn(BASE64, 300)]),
    kind("bedrock key", "AWS_BEARER_TOKEN_BEDROCK", &[Text("ABSK"), Drawn(BASE64, 128)]),
    kind("google api key", "GOOGLE_API_KEY", &[Text("AIza"), Drawn(URL_SAFE, 34), Drawn(WORD, 1)]),
    kind("google client secret", "GOOGLE_CLIENT_SECRET", &[Text("GOCSPX-"), Drawn(URL_SAFE, 28)]),
    kind("google access token", "GOOGLE_OAUTH_ACCESS_TOKEN", &[Text("ya29."), Drawn(URL_SAFE, 160)]),
    kind("azure client secret", "AZURE_CLIENT_SECRET", &[Drawn(WORD, 3), Text("8Q~"), Drawn(WORD, 34)]),
    kind("azure storage key", "AZURE_STORAGE_KEY", &[Drawn(BASE64, 86), Text("==")]),
    kind("azure devops token", "AZURE_DEVOPS_TOKEN", &[Drawn(WORD, 76), Text("AZDO"), Drawn(WORD, 4)]),
    kind("azure openai key", "AZURE_OPENAI_API_KEY", &[Drawn(HEX, 32)]),
    kind("digitalocean", "DIGITALOCEAN_TOKEN", &[Text("dop_v1_"), Drawn(HEX, 64)]),
    kind("databricks", "DATABRICKS_TOKEN", &[Text("dapi"), Drawn(HEX, 32)]),
    kind("heroku", "HEROKU_API_KEY", &[Text("HRKU-"), Drawn(URL_SAFE, 60)]),
    kind("cloudflare", "CLOUDFLARE_API_TOKEN", &[Drawn(URL_SAFE, 40)]),
    kind("netlify", "NETLIFY_AUTH_TOKEN", &[Text("nfp_"), Drawn(WORD, 36)]),
    kind("vercel", "VERCEL_TOKEN", &[Drawn(WORD, 24)]),
    kind("supabase", "SUPABASE_ACCESS_TOKEN", &[Text("sbp_"), Drawn(HEX, 40)]),
    kind("terraform", "TF_API_TOKEN", &[Drawn(WORD, 14), Text(".atlasv1."), Drawn(WORD, 67)]),
    kind("pulumi", "PULUMI_ACCESS_TOKEN", &[Text("pul-"), Drawn(HEX, 40)]),
    kind("vault", "VAULT_TOKEN", &[Text("hvs."), Drawn(URL_SAFE, 90)]),
    kind("tailscale", "TS_AUTH_KEY", &[Text("tskey-auth-"), Drawn(WORD, 17), Text("-"), Drawn(WORD, 32)]),
    kind("github classic", "GITHUB_TOKEN", &[Text("ghp_"), Drawn(WORD, 36)]),
    kind("github oauth", "GH_TOKEN", &[Text("gho_"), Drawn(WORD, 36)]),
    kind("github app", "GITHUB_APP_TOKEN", &[Text("ghs_"), Drawn(WORD, 36)]),
    kind("github fine", "GITHUB_PAT", &[Text("github_pat_"), Drawn(WORD, 22), Text("_"), Drawn(WORD, 59)]),
    kind("gitlab", "GITLAB_TOKEN", &[Text("glpat-"), Drawn(URL_SAFE, 20)]),
    kind("bitbucket", "BITBUCKET_TOKEN", &[Text("ATBB"), Drawn(WORD, 32)]),
    kind("atlassian", "JIRA_API_TOKEN", &[Text("ATATT3"), Drawn(URL_SAFE, 180)]),
    kind("npm", "NPM_TOKEN", &[Text("npm_"), Drawn(WORD, 36)]),
    kind("pypi", "PYPI_TOKEN", &[Text("pypi-AgE"), Drawn(URL_SAFE, 160)]),
    kind("rubygems", "GEM_HOST_API_KEY", &[Text("rubygems_"), Drawn(HEX, 48)]),
    kind("crates.io", "CARGO_REGISTRY_TOKEN", &[Text("cio"), Drawn(WORD, 32)]),
    kind("docker hub", "DOCKER_TOKEN", &[Text("dckr_pat_"), Drawn(URL_SAFE, 27)]),
    kind("circleci", "CIRCLE_TOKEN", &[Drawn(HEX, 40)]),
    kind("sentry", "SENTRY_AUTH_TOKEN", &[Text("sntrys_"), Drawn(WORD, 120)]),
    kind("openai project", "OPENAI_API_KEY", &[Text("sk-proj-"), Drawn(URL_SAFE, 120)]),
    kind("openai old", "OPENAI_KEY", &[Text("sk-"), Drawn(WORD, 20), Text("T3BlbkFJ"), Drawn(WORD, 20)]),
    kind("anthropic", "ANTHROPIC_API_KEY", &[Text("sk-ant-api03-"), Drawn(URL_SAFE, 93), Text("AA")]),
    kind("openrouter", "OPENROUTER_API_KEY", &[Text("sk-or-v1-"), Drawn(HEX, 64)]),
    kind("deepseek", "DEEPSEEK_API_KEY", &[Text("sk-"), Drawn(HEX, 32)]),
    kind("mistral", "MISTRAL_API_KEY", &[Drawn(WORD, 32)]),
    kind("hugging face", "HF_TOKEN", &[Text("hf_"), Drawn(LETTERS, 34)]),
    kind("groq", "GROQ_API_KEY", &[Text("gsk_"), Drawn(WORD, 52)]),
    kind("xai", "XAI_API_KEY", &[Text("xai-"), Drawn(WORD, 80)]),
    kind("replicate", "REPLICATE_API_TOKEN", &[Text("r8_"), Drawn(WORD, 37)]),
    kind(
        "slack bot",
        "SLACK_BOT_TOKEN",
        &[Text("xoxb-"), Drawn(DIGITS, 12), Text("-"), Drawn(DIGITS, 13), Text("-"), Drawn(WORD, 24)],
    ),
    kind(
        "slack app",
        "SLACK_APP_TOKEN",
        &[Text("xapp-1-A"), Drawn(UPPER, 10), Text("-"), Drawn(DIGITS, 13), Text("-"), Drawn(HEX, 64)],
    ),
    kind(
        "slack webhook",
        "SLACK_WEBHOOK",
        &[
            Text("https://hooks.slack.com/services/T"),
            Drawn(UPPER, 10),
            Text("/B"),
            Drawn(UPPER, 10),
            Text("/"),
            Drawn(WORD, 24),
        ],
    ),
    kind(
        "discord bot",
        "DISCORD_TOKEN",
        &[Text("MT"), Drawn(WORD, 24), Text("."), Drawn(WORD, 6), Text("."), Drawn(URL_SAFE, 38)],
    ),
    kind(
        "telegram bot",
        "TELEGRAM_BOT_TOKEN",
        &[Text("7"), Drawn(DIGITS, 9), Text(":AA"), Drawn(URL_SAFE, 32), Drawn(WORD, 1)],
    ),
    kind("stripe", "STRIPE_SECRET_KEY", &[Text("sk_"), Text("live_"), Drawn(WORD, 99)]),
    kind("stripe webhook", "STRIPE_WEBHOOK_SECRET", &[Text("whsec_"), Drawn(WORD, 32)]),
    kind("shopify", "SHOPIFY_ACCESS_TOKEN", &[Text("shpat_"), Drawn(HEX, 32)]),
    kind("sendgrid", "SENDGRID_API_KEY", &[Text("SG."), Drawn(URL_SAFE, 22), Text("."), Drawn(URL_SAFE, 43)]),
    kind("twilio key", "TWILIO_API_KEY", &[Text("SK"), Drawn(HEX, 32)]),
    kind("twilio auth", "TWILIO_AUTH_TOKEN", &[Drawn(HEX, 32)]),
    kind("mailgun", "MAILGUN_API_KEY", &[Text("key-"), Drawn(HEX, 32)]),
    kind("mailchimp", "MAILCHIMP_API_KEY", &[Drawn(HEX, 32), Text("-us14")]),
    kind("linear", "LINEAR_API_KEY", &[Text("lin_api_"), Drawn(WORD, 40)]),
    kind("notion", "NOTION_TOKEN", &[Text("ntn_"), Drawn(WORD, 46)]),
    kind("airtable", "AIRTABLE_TOKEN", &[Text("pat"), Drawn(WORD, 14), Text("."), Drawn(HEX, 64)]),
    kind("figma", "FIGMA_TOKEN", &[Text("figd_"), Drawn(URL_SAFE, 40)]),
    kind("grafana", "GRAFANA_TOKEN", &[Text("glsa_"), Drawn(WORD, 32), Text("_"), Drawn(HEX, 8)]),
    kind("datadog", "DD_API_KEY", &[Drawn(HEX, 32)]),
    kind("new relic", "NEW_RELIC_API_KEY", &[Text("NRAK-"), Drawn(UPPER, 27)]),
    kind(
        "json web token",
        "SESSION_JWT",
        &[
            Text("eyJhbGciOi"),
            Drawn(WORD, 10),
            Text(".eyJ"),
            Drawn(URL_SAFE, 80),
            Text("."),
            Drawn(URL_SAFE, 43),
        ],
    ),
    kind("password", "DB_PASSWORD", &[Drawn(TYPED, 14)]),
    kind("short password", "ADMIN_PASSWORD", &[Drawn(LETTERS, 5), Drawn(DIGITS, 3)]),
    kind("django secret", "SECRET_KEY", &[Text("django-insecure-"), Drawn(WORD, 50)]),
    kind(
        "postgres url",
        "DATABASE_URL",
        &[Text("postgres://app:"), Drawn(WORD, 16), Text("@db.internal:5432/app")],
    ),
    kind("mysql url", "MYSQL_URL", &[Text("mysql://root:"), Drawn(TYPED, 12), Text("@10.0.0.7/shop")]),
    kind(
        "mongodb url",
        "MONGO_URL",
        &[Text("mongodb+srv://admin:"), Drawn(WORD, 20), Text("@c0.mongodb.net/app")],
    ),
    kind("redis url", "REDIS_URL", &[Text("rediss://:"), Drawn(WORD, 24), Text("@cache:6380/0")]),
    kind("amqp url", "AMQP_URL", &[Text("amqps://guest:"), Drawn(WORD, 10), Text("@mq/vhost")]),
];
