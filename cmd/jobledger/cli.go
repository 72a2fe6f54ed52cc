package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"jobledger/internal/logging"
	"jobledger/ledger"
)

// envPrefix starts the environment variable that stands in for a flag:
// JOBLEDGER_LOG_LEVEL for --log-level.
const envPrefix = "JOBLEDGER_"

// A cli is one run of the command line.
type cli struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer

	// The global flags.
	configFile string
	natsURL    string
	natsCreds  string
	natsInbox  string
	database   string
	api        string
	data       string
	output     string
	logLevel   string
	logFormat  string

	configGiven bool // --config was set, on the command line or in the environment
	dataGiven   bool
	log         *slog.Logger
}

func newCLI(stdin io.Reader, stdout, stderr io.Writer) *cli {
	return &cli{stdin: stdin, stdout: stdout, stderr: stderr, log: slog.New(slog.DiscardHandler)}
}

// execute runs the command line and returns the exit status.
func (c *cli) execute(ctx context.Context, args []string) int {
	root := c.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	var ran *ranError
	if !errors.As(err, &ran) {
		fmt.Fprintf(c.stderr, "jobledger: %v\nRun 'jobledger --help' for the commands and their flags.\n", err)
		return exitUsage
	}
	var exit *exitError
	if !errors.As(err, &exit) || exit.err != nil {
		fmt.Fprintf(c.stderr, "jobledger: %v\n", err)
	}
	return exitCode(err)
}

// A ranError is an error of a command that was understood; whatever else goes
// wrong is a matter of usage.
type ranError struct{ err error }

func (e *ranError) Error() string { return e.err.Error() }
func (e *ranError) Unwrap() error { return e.err }

// ran makes a cobra function of f.
func ran(f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := f(cmd.Context(), args); err != nil {
			return &ranError{err}
		}
		return nil
	}
}

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "jobledger",
		Short: "A ledger of jobs: one intent, one job, one result",
		Long: "A ledger of jobs: one intent, one job, one result.\n\n" +
			"Every flag can be given as an environment variable: JOBLEDGER_LOG_LEVEL for --log-level.\n" +
			"Exit status: 0 done, 1 failed, 2 usage, 3 conflict, 4 refused, 5 not found, 6 differences found,\n" +
			"7 unreachable, 8 unknown, 9 cancelled, 10 timed out.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return c.prepare(cmd)
		},
	}
	root.SetIn(c.stdin)
	root.SetOut(c.stdout)
	root.SetErr(c.stderr)
	f := root.PersistentFlags()
	f.StringVar(&c.configFile, "config", "jobledger.yaml", "the configuration `FILE`; the default may be missing")
	f.StringVar(&c.natsURL, "nats", "", "the NATS server's `URL`, instead of the configuration's")
	f.StringVar(&c.natsCreds, "nats-creds", "", "a `FILE` with credentials for NATS, instead of the configuration's")
	f.StringVar(&c.natsInbox, "nats-inbox", "", "`PREFIX` of the subjects on which NATS answers this process, such as _INBOX.worker (default _INBOX)")
	f.StringVar(&c.database, "database", "", "the database's `URL`, instead of the configuration's")
	f.StringVar(&c.api, "api", "", "the HTTP API's `URL`: submit, job, attempt and provider commands go there (token in JOBLEDGER_TOKEN)")
	f.StringVar(&c.data, "data", ".jobledger", "the `DIR` of a dev stack; commands find a running one by DIR/dev.json")
	f.StringVarP(&c.output, "output", "o", "table", "`table` or json")
	f.StringVar(&c.logLevel, "log-level", "info", "`LEVEL` of the log on standard error: debug, info, warn or error")
	f.StringVar(&c.logFormat, "log-format", "text", "`FORMAT` of the log: text or json")

	root.AddCommand(c.devCommand(), c.execEchoCommand(), c.initCommand(), c.serveCommand(), c.migrateCommand(),
		c.contractCommand(), c.kindCommand(), c.providerCommand(), c.submitCommand(), c.jobCommand(), c.attemptCommand(),
		c.rejectionsCommand(), c.rebuildCommand(), c.verifyCommand(), c.doctorCommand(), c.benchCommand(), c.versionCommand())
	c.completeFlags(root)
	fixed(root, "output", "table", "json")
	fixed(root, "log-level", "debug", "info", "warn", "error")
	fixed(root, "log-format", "text", "json")
	return root
}

// group is a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return fmt.Errorf("%s needs one of: %s", cmd.CommandPath(), strings.Join(names(commands), ", "))
	}}
	g.AddCommand(commands...)
	return g
}

func names(commands []*cobra.Command) []string {
	list := make([]string, len(commands))
	for i, cmd := range commands {
		list[i] = cmd.Name()
	}
	return list
}

// prepare fills flags from the environment and checks the global ones.
func (c *cli) prepare(cmd *cobra.Command) error {
	if err := flagsFromEnvironment(cmd.Flags()); err != nil {
		return err
	}
	c.configGiven = cmd.Flags().Changed("config")
	c.dataGiven = cmd.Flags().Changed("data")
	if c.output != "table" && c.output != "json" {
		return fmt.Errorf("--output is %q; expected table or json", c.output)
	}
	log, err := logging.New(c.stderr, c.logLevel, logging.Format(c.logFormat))
	if err != nil {
		return err
	}
	c.log = slog.New(logging.Throttle(log.Handler(), nil))
	return nil
}

// flagsFromEnvironment sets the flags that the command line has left out and
// that the environment gives. An empty variable counts as not set.
func flagsFromEnvironment(flags *pflag.FlagSet) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		name := envPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value := os.Getenv(name)
		if f.Changed || value == "" || f.Name == "help" {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("the environment variable %s: %w", name, err))
		}
	})
	return errors.Join(errs...)
}

// actor names who speaks in entries that this command appends.
func actor() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if name == "" {
		name = fmt.Sprintf("uid-%d", os.Getuid())
	}
	return ledger.ValidText("cli:" + name)
}
