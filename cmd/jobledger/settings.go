package main

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"

	"jobledger/internal/config"
)

// loadConfig reads the configuration. A file that was not asked for by name may
// be missing.
func (c *cli) loadConfig() (*config.Config, error) {
	cfg, err := config.Load(c.configFile, c.configGiven)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, exitWith(exitUsage, "the configuration file %s does not exist", c.configFile)
	}
	if err != nil {
		return nil, &exitError{code: exitUsage, err: err}
	}
	return cfg, nil
}

// A target says which servers a command talks to.
type target struct {
	nats     natsTarget
	database string
}

// target finds the servers. What the flags or the environment say goes first;
// then, unless a configuration file was named, a dev stack that runs in the data
// directory; then the configuration.
func (c *cli) target() (target, *config.Config, error) {
	cfg, err := c.loadConfig()
	if err != nil {
		return target{}, nil, err
	}
	t := target{nats: natsTarget{url: cfg.NATS.URL, creds: cfg.NATS.Creds}, database: cfg.Database.URL}
	if c.dataGiven || !c.configGiven {
		dev, running, err := readDevFile(c.data)
		if err != nil {
			return target{}, nil, err
		}
		if running {
			t = target{nats: natsTarget{url: dev.NATS}, database: dev.Database}
		} else if c.dataGiven && (c.natsURL == "" || c.database == "") {
			return target{}, nil, exitWith(exitUnreachable, "no dev stack is running in %s; start one with jobledger dev --data %s", c.data, c.data)
		}
	}
	if c.natsURL != "" {
		t.nats.url = c.natsURL
	}
	if c.natsCreds != "" {
		t.nats.creds = c.natsCreds
	}
	if c.natsInbox != "" && !inboxPrefix.MatchString(c.natsInbox) {
		return target{}, nil, exitWith(exitUsage, "--nats-inbox is %q; expected _INBOX, or _INBOX with names behind it, such as _INBOX.worker: decisions are sent nowhere else", c.natsInbox)
	}
	t.nats.inbox = c.natsInbox
	if c.database != "" {
		t.database = c.database
	}
	return t, cfg, nil
}

// inboxPrefix is what inboxes may start with: the projector and the services
// answer below _INBOX only.
var inboxPrefix = regexp.MustCompile(`^_INBOX(\.[A-Za-z0-9_-]+)*$`)

// needDatabase is an error of usage if no database is known.
func (t target) needDatabase() error {
	if t.database == "" {
		return exitWith(exitUsage, "%w", errNoDatabase)
	}
	return nil
}

var errNoDatabase = fmt.Errorf("no database is known: give --database or %sDATABASE, set database.url in the configuration, or start jobledger dev here", envPrefix)
