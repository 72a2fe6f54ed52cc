package config

import (
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// No fault about a URL quotes it: URLs are where credentials hide.

const (
	natsExpected     = "a URL such as nats://host:4222, or several with commas between them"
	httpExpected     = "an http or https URL with a host and without credentials or fragment"
	databaseExpected = "a URL such as postgres://user@host:5432/database"
	credentials      = "a URL with credentials in it (not shown)"
)

// natsURL reads one or more NATS URLs.
func natsURL(n node) (string, bool) {
	s, ok := filledText(n)
	if !ok {
		return "", false
	}
	for one := range strings.SplitSeq(s, ",") {
		u, err := url.Parse(one)
		switch {
		case err != nil || u.Hostname() == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme):
			n.reject("another text (not shown)", natsExpected)
			return "", false
		case u.User != nil:
			n.reject(credentials, "it without; nats.creds names a file with credentials")
			return "", false
		}
	}
	return s, true
}

// httpURL reads an absolute http or https URL.
func httpURL(n node) (string, bool) {
	s, ok := filledText(n)
	if !ok {
		return "", false
	}
	return s, checkHTTPURL(n, s)
}

func checkHTTPURL(n node, s string) bool {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https") || u.Fragment != "":
		n.reject("another text (not shown)", httpExpected)
		return false
	case u.User != nil:
		n.reject(credentials, "it without; headers_env or api_key_env names variables that hold secrets")
		return false
	}
	return true
}

// baseURL reads the URL to which an API's paths are added.
func baseURL(api ModelAPI) reader[string] {
	return func(n node) (string, bool) {
		s, ok := httpURL(n)
		switch {
		case !ok:
			return "", false
		case strings.Contains(s, "?"):
			n.reject("a URL with a query (not shown)", "it without; the API's paths are added to it")
			return "", false
		case api == APIAnthropic && strings.HasSuffix(strings.TrimRight(s, "/"), "/v1"):
			n.reject("a URL that ends with /v1", "it without; /v1/messages is added to it")
			return "", false
		}
		return s, true
	}
}

var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

// lookupURL reads a URL with {job_id} and, optionally, {attempt} behind its host.
func lookupURL(n node) (string, bool) {
	const expected = "a URL with {job_id} and, optionally, {attempt} in its path or query"
	s, ok := filledText(n)
	if !ok {
		return "", false
	}
	for _, p := range placeholder.FindAllString(s, -1) {
		if p != "{job_id}" && p != "{attempt}" {
			n.reject("the placeholder "+n.describeText(p), expected)
			return "", false
		}
	}
	if !strings.Contains(s, "{job_id}") {
		n.reject("a URL without {job_id}", expected)
		return "", false
	}
	filled := placeholder.ReplaceAllString(s, "0")
	// A URL that changes its host with the job would send requests anywhere.
	if strings.ContainsAny(filled, "{}") || authority(s) != authority(filled) {
		n.reject("a stray brace or a placeholder in the host", expected)
		return "", false
	}
	return s, checkHTTPURL(n, filled)
}

// authority is what stands between :// and the next /, ? or #.
func authority(s string) string {
	_, rest, _ := strings.Cut(s, "://")
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	return rest
}

// databaseURL reads a PostgreSQL URL. It is taken apart by hand: net/url refuses
// lists of hosts, which the driver understands.
func databaseURL(n node) (string, bool) {
	s, ok := filledText(n)
	if !ok {
		return "", false
	}
	scheme, rest, _ := strings.Cut(s, "://")
	server := authority(s)
	behind := strings.TrimPrefix(rest, server)
	_, query, _ := strings.Cut(behind, "?")
	values, err := url.ParseQuery(query)
	user, hosts := cutUser(server)
	switch {
	case scheme != "postgres" && scheme != "postgresql", rest == "", err != nil, !databaseHosts.MatchString(hosts),
		strings.Contains(behind, "@"): // a password with a / ? or # that was not escaped
		n.reject("another text (not shown)", databaseExpected)
		return "", false
	case strings.Contains(user, ":"), values.Has("password"), values.Has("sslpassword"):
		n.reject("a URL with a password in it (not shown)", "it without; PGPASSWORD, a passfile or JOBLEDGER_DATABASE can hold it")
		return "", false
	}
	return s, true
}

// databaseHosts is a list of hosts, each with an optional port; a host in
// brackets is an IPv6 address. No host at all means a socket.
var databaseHosts = regexp.MustCompile(`^((\[[^\[\]]+\]|[^:,\[\]]+)(:[0-9]{1,5})?(,|$))*$`)

// cutUser splits an authority into what stands before and behind its last @.
func cutUser(authority string) (user, hosts string) {
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		return authority[:i], authority[i+1:]
	}
	return "", authority
}

// listenAddress reads host:port with a numeric port; an empty host means all.
func listenAddress(n node) (string, bool) {
	const expected = "host:port, such as 127.0.0.1:8080"
	s, ok := text(n)
	if !ok {
		return "", false
	}
	_, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		n.rejectValue(expected)
		return "", false
	}
	return s, true
}
