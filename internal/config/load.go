package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Load reads the configuration file at path. What the file leaves out has the
// values of [Default]. Relative paths in the file (nats.creds, api.tokens_file,
// workers.spool, a kind's contract, an exec provider's dir) are taken from the file's own
// folder and returned joined to it.
//
// A file that is not there is an error (fs.ErrNotExist) if required, otherwise
// Load returns Default. Everything that is wrong with the content is returned at
// once as joined [Fault] values, and no Config with it.
func Load(path string, required bool) (*Config, error) {
	data, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if !required {
			return Default(), nil
		}
		return nil, fmt.Errorf("configuration file %s is not there; create it, or name another with --config: %w", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	return decode(path, data)
}

func decode(path string, data []byte) (*Config, error) {
	doc := &document{file: path}
	root, err := doc.parse(data)
	if err != nil {
		return nil, err
	}
	c := Default()
	readConfig(root, c)
	if err := doc.err(); err != nil {
		return nil, err
	}
	c.resolvePaths(filepath.Dir(path))
	return c, nil
}

func readConfig(root node, c *Config) {
	o, ok := root.object("a mapping with nats, database, api, workers, kinds and providers")
	if !ok {
		return
	}
	section(o, "nats", func(o *object) { readNATS(o, &c.NATS) })
	section(o, "database", func(o *object) { set(o, "url", &c.Database.URL, databaseURL) })
	section(o, "api", func(o *object) { readAPI(o, &c.API) })
	section(o, "workers", func(o *object) { set(o, "spool", &c.Workers.Spool, text) })

	// A kind may name every provider that stands in the file, whether or not
	// that one is faulty itself: one slip gives one message.
	var known []string
	if n, ok := o.member("providers"); ok {
		if all, ok := n.object("a mapping from names to providers"); ok {
			known = slices.Sorted(maps.Keys(all.members))
			all.each(func(name string, n node) { readProvider(name, n, c.Providers) })
		}
	}
	if n, ok := o.member("kinds"); ok {
		if all, ok := n.object("a mapping from names to kinds"); ok {
			all.each(func(name string, n node) { readKind(name, n, known, c.Kinds) })
		}
	}
	o.finish()
}

// section reads a member that is a mapping with fixed members.
func section(o *object, name string, read func(*object)) {
	n, ok := o.member(name)
	if !ok {
		return
	}
	if inner, ok := n.object("a mapping"); ok {
		read(inner)
		inner.finish()
	}
}

var (
	namePattern   = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)
	streamPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)
)

const nameExpected = "a name of 1 to 64 characters a-z 0-9 _ - that starts with a letter or digit"

// checkName rejects the node if the name under which it stands is not allowed.
func checkName(name string, n node) bool {
	if namePattern.MatchString(name) {
		return true
	}
	n.rejectName("the name "+n.describeText(name), nameExpected)
	return false
}

func readNATS(o *object, c *NATS) {
	const token = "a text of 1 to 64 characters A-Z a-z 0-9 _ - that start with a letter or digit"
	set(o, "url", &c.URL, natsURL)
	set(o, "stream", &c.Stream, matching(streamPattern, token))
	set(o, "subject_prefix", &c.SubjectPrefix, matching(streamPattern, token))
	set(o, "creds", &c.Creds, text)
	set(o, "monitor", &c.Monitor, orEmpty(httpURL))
}

func readAPI(o *object, c *API) {
	set(o, "listen", &c.Listen, listenAddress)
	set(o, "metrics", &c.Metrics, orEmpty(listenAddress))
	set(o, "tokens_file", &c.TokensFile, text)
	if c.Listen == c.Metrics && !strings.HasSuffix(c.Listen, ":0") && o.sound("listen", "metrics") {
		o.spot("metrics").reject("the same address as api.listen", `another one, or "" for no metrics`)
	}
}

// orEmpty lets an empty text pass.
func orEmpty(read reader[string]) reader[string] {
	return func(n node) (string, bool) {
		if s, ok := rawText(n); ok && s == "" {
			return "", true
		}
		return read(n)
	}
}

func (c *Config) resolvePaths(folder string) {
	resolve := func(path string) string {
		if path == "" || filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(folder, path)
	}
	c.NATS.Creds = resolve(c.NATS.Creds)
	c.API.TokensFile = resolve(c.API.TokensFile)
	c.Workers.Spool = resolve(c.Workers.Spool)
	for name, k := range c.Kinds {
		k.Contract = resolve(k.Contract)
		c.Kinds[name] = k
	}
	for name, p := range c.Providers {
		if e, ok := p.Spec.(Exec); ok {
			e.Dir = resolve(e.Dir)
			p.Spec = e
			c.Providers[name] = p
		}
	}
}
