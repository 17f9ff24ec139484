package secrets

import (
	"math/bits"
	"slices"
	"strings"
)

// A Kind is one shape of secret that is looked for.
type Kind struct {
	// Name is lower-case and never changes its meaning: policies and records have it.
	Name        string
	Description string // for people: what it is, by whom
}

// Kinds returns all kinds, sorted by name.
func Kinds() []Kind {
	all := slices.Clone(kinds)
	slices.SortFunc(all, func(a, b Kind) int { return strings.Compare(a.Name, b.Name) })
	return all
}

var kinds = []Kind{
	{"age-secret-key", "age identity"},
	{"airtable-token", "Airtable personal access token"},
	{"alibaba-access-key", "Alibaba Cloud access key id"},
	{"anthropic-key", "Anthropic API key, admin key or OAuth token"},
	{"atlassian-token", "Atlassian API token or Bitbucket access token"},
	{"aws-access-key", "AWS access key id, long-term or temporary"},
	{"aws-bedrock-key", "Amazon Bedrock API key"},
	{"aws-secret-key", "AWS secret access key, where it is assigned to its usual name"},
	{"azure-client-secret", "Microsoft Entra ID client secret"},
	{"azure-shared-key", "key of an Azure storage account, service bus or event hub in a connection string"},
	{"bitbucket-app-password", "Bitbucket app password"},
	{"braintree-token", "PayPal Braintree production access token"},
	{"brevo-key", "Brevo (Sendinblue) API or SMTP key"},
	{"cloudflare-token", "Cloudflare API token, global key or origin CA key"},
	{"crates-io-token", "crates.io API token"},
	{"databricks-token", "Databricks personal access token"},
	{"digitalocean-token", "DigitalOcean personal access, OAuth or refresh token"},
	{"discord-bot-token", "Discord bot token"},
	{"discord-webhook", "Discord webhook URL"},
	{"docker-token", "Docker Hub personal or organization access token"},
	{"doppler-token", "Doppler token"},
	{"dynatrace-token", "Dynatrace API token"},
	{"figma-token", "Figma personal access token"},
	{"fly-token", "Fly.io access token"},
	{"github-token", "GitHub token: personal, OAuth, user, installation, refresh, fine-grained"},
	{"gitlab-token", "GitLab token: personal, deploy, runner, job, trigger, agent, feed and others"},
	{"google-api-key", "Google API key, also of Gemini, Maps and Firebase"},
	{"google-oauth-secret", "Google OAuth client secret"},
	{"grafana-token", "Grafana service account or Grafana Cloud token"},
	{"groq-key", "Groq API key"},
	{"heroku-key", "Heroku API key"},
	{"hugging-face-token", "Hugging Face access token"},
	{"langsmith-key", "LangSmith API key"},
	{"linear-key", "Linear API key"},
	{"mailchimp-key", "Mailchimp API key"},
	{"mailgun-key", "Mailgun API key"},
	{"new-relic-key", "New Relic user API key"},
	{"notion-token", "Notion integration token"},
	{"npm-token", "npm access token"},
	{"onepassword-token", "1Password service account token"},
	{"openai-key", "OpenAI API key: user, project, service account, admin"},
	{"openrouter-key", "OpenRouter API key"},
	{"perplexity-key", "Perplexity API key"},
	{"planetscale-token", "PlanetScale password, service or OAuth token"},
	{"postman-key", "Postman API key"},
	{"private-key", "private key: PKCS #8, RSA, EC, DSA, OpenSSH, PGP, PuTTY; also encrypted, within JSON, in base64"},
	{"pulumi-token", "Pulumi access token"},
	{"pypi-token", "PyPI or TestPyPI upload token"},
	{"replicate-token", "Replicate API token"},
	{"rubygems-key", "RubyGems API key"},
	{"sendgrid-key", "SendGrid API key"},
	{"sentry-token", "Sentry organization or user auth token"},
	{"shopify-token", "Shopify access token or shared secret"},
	{"slack-token", "Slack bot, user, app, refresh, session or configuration token"},
	{"slack-webhook", "Slack webhook URL"},
	{"square-token", "Square access token or OAuth secret"},
	{"stripe-key", "Stripe live secret or restricted key, webhook signing secret"},
	{"supabase-token", "Supabase access token"},
	{"teams-webhook", "Microsoft Teams webhook URL"},
	{"telegram-bot-token", "Telegram bot token"},
	{"terraform-token", "HCP Terraform API token"},
	{"twilio-key", "Twilio API key id"},
	{"vault-token", "HashiCorp Vault service, batch or recovery token"},
	{"vercel-token", "Vercel access, integration, app or API key"},
	{"xai-key", "xAI API key"},
}

// A rule is one shape of a kind.
type rule struct {
	kind  string
	parts []part
	open  bool // may go on behind what was matched
	// check tells more of the token; b is what it stands in, n its length.
	check func(b []byte, n int) bool
}

// match returns the length of the token that b begins with, 0 when there is none, and
// whether that is a secret: a placeholder is none.
func (r *rule) match(b []byte) (n int, secret bool) {
	n, body, of := match(b, r.parts, r.open)
	if n == 0 || !hasRun(b[:n]) {
		return 0, false
	}
	if r.check != nil && !r.check(b, n) {
		return 0, false
	}
	lead := 0
	if r.parts[0].isLit() {
		lead = len(r.parts[0].lit)
	}
	return n, !isPlaceholder(b[lead:n], body, of)
}

// rules are the shapes that tell themselves by their first four bytes.
var rules = slices.Concat(
	[]rule{
		{kind: "age-secret-key", parts: plain("AGE-SECRET-KEY-1", exactly(&bech32, 58))},
		{kind: "airtable-token", parts: shape(lit("pat"), exactly(&alnum, 14), lit("."), exactly(&hex, 64))},
		{kind: "alibaba-access-key", parts: plain("LTAI", exactly(&alnum, 20))},
		{kind: "anthropic-key", parts: shape(lit("sk-ant-"), some(&lower, 3, 5), exactly(&digits, 2), lit("-"), some(&word, 80, 130))},
		{kind: "aws-secret-key", parts: shape(lit("aws_secret_access_key")), check: isAWSSecret},
		{kind: "aws-secret-key", parts: shape(lit("AWS_SECRET_ACCESS_KEY")), check: isAWSSecret},
		{kind: "aws-bedrock-key", parts: plain("ABSKQmVkcm9ja0FQSUtleS", some(&base64s, 80, 260)), open: true},
		{kind: "bitbucket-app-password", parts: plain("ATBB", exactly(&alnum, 32))},
		{kind: "braintree-token", parts: shape(lit("access_token$production$"), exactly(&alnum, 16), lit("$"), exactly(&hex, 32))},
		{kind: "cloudflare-token", parts: shape(lit("v1.0-"), exactly(&hex, 24), lit("-"), exactly(&hex, 146))},
		{kind: "crates-io-token", parts: plain("cio", exactly(&alnum, 32))},
		{kind: "databricks-token", parts: plain("dapi", exactly(&hex, 32))},
		{kind: "databricks-token", parts: shape(lit("dapi"), exactly(&hex, 32), lit("-"), exactly(&digits, 1))},
		{kind: "discord-webhook", parts: shape(lit("discord.com/api/webhooks/"), some(&digits, 17, 20), lit("/"), some(&word, 60, 80))},
		{kind: "discord-webhook", parts: shape(lit("discordapp.com/api/webhooks/"), some(&digits, 17, 20), lit("/"), some(&word, 60, 80))},
		{kind: "docker-token", parts: plain("dckr_pat_", exactly(&word, 27))},
		{kind: "docker-token", parts: plain("dckr_oat_", some(&word, 27, 40))},
		{kind: "dynatrace-token", parts: shape(lit("dt0c01."), exactly(&upper, 24), lit("."), exactly(&upper, 64))},
		{kind: "figma-token", parts: plain("figd_", some(&word, 38, 64))},
		{kind: "fly-token", parts: plain("fo1_", exactly(&word, 43))},
		{kind: "fly-token", parts: plain("fm2_", some(&base64s, 100, 800)), open: true},
		{kind: "fly-token", parts: plain("fm1r_", some(&base64s, 100, 800)), open: true},
		{kind: "fly-token", parts: plain("fm1a_", some(&base64s, 100, 800)), open: true},
		{kind: "github-token", parts: shape(lit("github_pat_"), exactly(&alnum, 22), lit("_"), exactly(&alnum, 59))},
		{kind: "github-token", parts: shape(lit("ghs_"), some(&alnum, 1, 24), lit("_eyJ"), some(&word, 15, 200), lit(".eyJ"), some(&word, 40, 500), lit("."), some(&word, 40, 200))},
		{kind: "gitlab-token", parts: plain("GR1348941", exactly(&word, 20))},
		{kind: "gitlab-token", parts: shape(lit("glcbt-"), some(&alnum, 1, 5), lit("_"), exactly(&word, 20))},
		{kind: "gitlab-token", parts: plain("glptt-", exactly(&hex, 40))},
		{kind: "gitlab-token", parts: plain("glimt-", exactly(&word, 25))},
		{kind: "gitlab-token", parts: plain("glagent-", exactly(&word, 50))},
		{kind: "gitlab-token", parts: plain("gloas-", exactly(&word, 64))},
		{kind: "google-api-key", parts: plain("AIza", exactly(&word, 35))},
		{kind: "google-oauth-secret", parts: plain("GOCSPX-", exactly(&word, 28))},
		{kind: "grafana-token", parts: shape(lit("glsa_"), exactly(&alnum, 32), lit("_"), exactly(&anyHex, 8))},
		{kind: "grafana-token", parts: plain("glc_eyJ", some(&base64s, 40, 400)), open: true},
		{kind: "groq-key", parts: plain("gsk_", exactly(&alnum, 52))},
		{kind: "heroku-key", parts: plain("HRKU-AA", exactly(&word, 58))},
		{kind: "heroku-key", parts: plain("HRKU-", exactly(&uuid, 36)), check: isUUID},
		{kind: "hugging-face-token", parts: plain("hf_", exactly(&alnum, 34))},
		{kind: "langsmith-key", parts: shape(lit("lsv2_pt_"), exactly(&hex, 32), lit("_"), exactly(&hex, 10))},
		{kind: "langsmith-key", parts: shape(lit("lsv2_sk_"), exactly(&hex, 32), lit("_"), exactly(&hex, 10))},
		{kind: "linear-key", parts: plain("lin_api_", exactly(&alnum, 40))},
		{kind: "mailgun-key", parts: plain("key-", exactly(&hex, 32))},
		{kind: "new-relic-key", parts: plain("NRAK-", exactly(&upper, 27))},
		{kind: "notion-token", parts: shape(lit("ntn_"), exactly(&alnum, 46)), check: beginsWithDigits(4, 11)},
		{kind: "notion-token", parts: plain("secret_", exactly(&alnum, 43))},
		{kind: "npm-token", parts: plain("npm_", exactly(&alnum, 36))},
		{kind: "onepassword-token", parts: plain("ops_eyJ", some(&base64p, 250, 900)), open: true},
		{kind: "openai-key", parts: plain("sk-", some(&word, 40, 200)), check: hasOpenAIMark},
		{kind: "openrouter-key", parts: plain("sk-or-v1-", exactly(&hex, 64))},
		{kind: "perplexity-key", parts: plain("pplx-", exactly(&alnum, 48))},
		{kind: "postman-key", parts: shape(lit("PMAK-"), exactly(&hex, 24), lit("-"), exactly(&hex, 34))},
		{kind: "private-key", parts: plain("LS0tLS1CRUdJTi", some(&base64s, 100, 100)), open: true, check: isKeyInBase64},
		{kind: "private-key", parts: shape(lit("PuTTY-User-Key-File-"), exactly(&digits, 1), lit(": ")), open: true, check: isPuTTYKey},
		{kind: "pulumi-token", parts: plain("pul-", exactly(&hex, 40))},
		{kind: "pypi-token", parts: plain("pypi-AgEIcHlwaS5vcmc", some(&word, 50, 500)), open: true},
		{kind: "pypi-token", parts: plain("pypi-AgENdGVzdC5weXBpLm9yZw", some(&word, 50, 500)), open: true},
		{kind: "replicate-token", parts: plain("r8_", exactly(&alnum, 37))},
		{kind: "rubygems-key", parts: plain("rubygems_", exactly(&hex, 48))},
		{kind: "sendgrid-key", parts: shape(lit("SG."), exactly(&word, 22), lit("."), exactly(&word, 43))},
		{kind: "sentry-token", parts: plain("sntrys_eyJ", some(&base64p, 90, 500)), open: true},
		{kind: "sentry-token", parts: plain("sntryu_", exactly(&hex, 64))},
		{kind: "slack-token", parts: shape(lit("xoxb-"), some(&digits, 9, 14), lit("-"), some(&digits, 9, 14), lit("-"), exactly(&alnum, 24))},
		{kind: "slack-token", parts: shape(lit("xoxb-"), some(&digits, 9, 14), lit("-"), some(&alnum, 18, 26))},
		{kind: "slack-token", parts: shape(lit("xoxp-"), some(&digits, 9, 14), lit("-"), some(&digits, 9, 14), lit("-"), some(&digits, 9, 14), lit("-"), some(&alnum, 28, 34))},
		{kind: "slack-token", parts: shape(lit("xoxs-"), some(&digits, 9, 14), lit("-"), some(&digits, 9, 14), lit("-"), some(&digits, 9, 14), lit("-"), some(&hex, 10, 64))},
		{kind: "slack-token", parts: shape(lit("xoxc-"), some(&digits, 9, 14), lit("-"), some(&digits, 9, 14), lit("-"), some(&digits, 9, 14), lit("-"), exactly(&hex, 64))},
		{kind: "slack-token", parts: shape(lit("xoxe.xoxb-1-"), some(&alnum, 140, 180))},
		{kind: "slack-token", parts: shape(lit("xoxe.xoxp-1-"), some(&alnum, 140, 180))},
		{kind: "slack-token", parts: shape(lit("xoxe-1-"), some(&alnum, 140, 180))},
		{kind: "slack-token", parts: shape(lit("xapp-1-A"), some(&upper, 8, 12), lit("-"), some(&digits, 9, 14), lit("-"), exactly(&hex, 64))},
		{kind: "slack-webhook", parts: shape(lit("hooks.slack.com/services/T"), some(&upper, 7, 12), lit("/B"), some(&upper, 7, 12), lit("/"), exactly(&alnum, 24))},
		{kind: "slack-webhook", parts: shape(lit("hooks.slack.com/workflows/T"), some(&upper, 7, 12), lit("/A"), some(&upper, 7, 12), lit("/"), some(&digits, 15, 20), lit("/"), exactly(&alnum, 24))},
		{kind: "slack-webhook", parts: shape(lit("hooks.slack.com/triggers/T"), some(&upper, 7, 12), lit("/"), some(&digits, 12, 16), lit("/"), exactly(&hex, 32))},
		{kind: "square-token", parts: plain("sq0atp-", exactly(&word, 22))},
		{kind: "square-token", parts: plain("sq0csp-", exactly(&word, 43))},
		{kind: "stripe-key", parts: plain("whsec_", some(&base64s, 32, 64))},
		{kind: "supabase-token", parts: plain("sbp_", exactly(&hex, 40))},
		{kind: "teams-webhook", parts: shape(lit("webhook.office.com/webhookb2/"), exactly(&uuid, 36), lit("@"), exactly(&uuid, 36), lit("/IncomingWebhook/"), exactly(&hex, 32), lit("/"), exactly(&uuid, 36))},
		{kind: "twilio-key", parts: plain("SK", exactly(&hex, 32))},
		{kind: "xai-key", parts: plain("xai-", exactly(&alnum, 80))},
	},
	each("atlassian-token", some(&base64p, 180, 260), "ATATT3xFfGF0", "ATCTT3xFfGN0"),
	each("aws-access-key", exactly(&base32, 16), "AKIA", "ASIA"),
	each("brevo-key", exactly(&hex, 64), "xkeysib-", "xsmtpsib-").then(lit("-"), exactly(&alnum, 16)),
	each("cloudflare-token", exactly(&alnum, 40), "cfk_", "cfut_", "cfat_").then(exactly(&hex, 8)),
	each("digitalocean-token", exactly(&hex, 64), "dop_v1_", "doo_v1_", "dor_v1_"),
	each("doppler-token", exactly(&alnum, 43), "dp.pt.", "dp.ct.", "dp.sa.", "dp.scim.", "dp.audit.", "dp.said."),
	each("doppler-token", some(&word, 2, 35), "dp.st.").then(lit("."), some(&alnum, 40, 44)),
	each("doppler-token", some(&alnum, 40, 44), "dp.st."),
	each("github-token", some(&alnum, 36, 255), "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
	each("gitlab-token", exactly(&word, 20), "glpat-", "gldt-", "glrt-", "glrtr-", "glft-", "glsoat-", "glffct-"),
	each("gitlab-token", some(&word, 27, 300), "glpat-", "gldt-", "glrt-", "glrtr-", "glft-").then(lit("."), exactly(&alnum, 9)),
	each("gitlab-token", some(&word, 27, 300), "glpat-").then(lit(".01."), exactly(&alnum, 9)),
	each("planetscale-token", some(&word, 32, 64), "pscale_tkn_", "pscale_pw_", "pscale_oauth_"),
	each("shopify-token", exactly(&anyHex, 32), "shpat_", "shpca_", "shppa_", "shpss_"),
	each("stripe-key", some(&alnum, 24, 247), "sk_live_", "rk_live_"),
	each("vault-token", some(&word, 24, 300), "hvs.", "hvb.", "hvr."),
	each("vercel-token", exactly(&word, 56), "vcp_", "vci_", "vca_", "vcr_", "vck_"),
)

type ruleSet []rule

// each makes a rule for each prefix.
func each(kind string, body part, prefixes ...string) ruleSet {
	var all ruleSet
	for _, p := range prefixes {
		all = append(all, rule{kind: kind, parts: plain(p, body)})
	}
	return all
}

// then adds what stands behind.
func (s ruleSet) then(more ...part) ruleSet {
	for i := range s {
		s[i].parts = append(s[i].parts, more...)
	}
	return s
}

// Rules of tokens without a literal at their beginning.
var (
	telegramRule = rule{kind: "telegram-bot-token", parts: shape(some(&digits, 8, 10), lit(":AA"), exactly(&word, 33))}
	discordRule  = rule{kind: "discord-bot-token", parts: shape(some(&word, 23, 28), lit("."), exactly(&word, 6), lit("."), some(&word, 27, 38)), check: beginsWithSnowflake}
)

// Rules of tokens that tell themselves some bytes behind their beginning.
var (
	terraformRule = rule{kind: "terraform-token", parts: shape(exactly(&alnum, 14), lit(".atlasv1."), some(&word, 60, 70))}
	mailchimpRule = rule{kind: "mailchimp-key", parts: shape(exactly(&hex, 32), lit("-us"), some(&digits, 1, 2))}
)

// rulesByBit has the rules of each bit of beginnings, and beginnings for each of the
// first four bytes of a token the bits of the rules that it can be of.
var rulesByBit, beginnings = func() (byBit [64][]*rule, first [4][256]uint64) {
	bit := 0
	add := func(r *rule, lead [4]string) {
		byBit[bit%64] = append(byBit[bit%64], r)
		for i, set := range lead {
			for _, b := range []byte(set) {
				first[i][b] |= 1 << (bit % 64)
			}
			if set != "" {
				continue
			}
			for b := range first[i] { // any
				first[i][b] |= 1 << (bit % 64)
			}
		}
		bit++
	}
	for i := range rules {
		var lead [4]string
		prefix := rules[i].parts[0].lit
		for j := range min(len(lead), len(prefix)) {
			lead[j] = prefix[j : j+1]
		}
		add(&rules[i], lead)
	}
	const decimal = "0123456789"
	add(&telegramRule, [4]string{decimal, decimal, decimal, decimal})
	add(&discordRule, snowflake64)
	return byBit, first
}()

// rulesOf returns the rules of the lowest bit of a set.
func rulesOf(set uint64) []*rule { return rulesByBit[bits.TrailingZeros64(set)] }

// isLate returns the rule of the token that b seems to begin with and that tells itself
// only some bytes behind.
func isLate(b []byte) *rule {
	if len(b) <= 34 {
		return nil
	}
	if b[14] == '.' && b[15] == 'a' && b[16] == 't' {
		return &terraformRule
	}
	if b[32] == '-' && b[33] == 'u' && b[34] == 's' {
		return &mailchimpRule
	}
	return nil
}
