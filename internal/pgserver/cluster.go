package pgserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// errEarlyExit: the server ended before it was ready.
var errEarlyExit = errors.New("PostgreSQL ended before it was ready")

// cluster is a directory that is ready to be served.
type cluster struct {
	Options
	bin      string // the folder of PostgreSQL's programs
	data     string // PGDATA
	password string
	identity identity
}

// openCluster finds or makes the cluster in o.Dir.
func openCluster(ctx context.Context, o Options) (*cluster, error) {
	if o.Dir == "" {
		return nil, errors.New("pgserver: Options.Dir is empty: name the directory for the cluster")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	// Others may pass through, as the server's user must, but not look.
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	o.Dir = dir
	c := &cluster{Options: o, data: filepath.Join(dir, "data")}
	version, err := readVersion(c.data)
	if err != nil {
		return nil, err
	}
	if c.bin, err = findBinaries(version); err != nil {
		return nil, err
	}
	if c.identity, err = chooseIdentity(c.data, c.bin); err != nil {
		return nil, err
	}
	if c.password, err = c.loadPassword(version != ""); err != nil {
		return nil, err
	}
	if version == "" {
		if err := c.initialize(ctx); err != nil {
			return nil, err
		}
	}
	return c, c.identity.own(c.data)
}

// readVersion returns the major version of the cluster in data, "" if there
// is none yet.
func readVersion(data string) (string, error) {
	text, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the cluster's version: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// loadPassword reads the cluster's password, or makes one for a new cluster.
func (c *cluster) loadPassword(clusterExists bool) (string, error) {
	path := filepath.Join(c.Dir, "password")
	text, err := os.ReadFile(path)
	if err == nil && len(text) > 0 {
		return strings.TrimSpace(string(text)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the cluster's password: %w", err)
	}
	if clusterExists {
		return "", fmt.Errorf("%s is missing or empty, and %s was made with the password in it: restore that file, or remove both to start anew", path, c.data)
	}
	password := rand.Text()
	if err := os.WriteFile(path, []byte(password+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("keep the cluster's password: %w", err)
	}
	return password, nil
}

// initialize runs initdb beside the final place and renames the result, so
// that an interrupted one is done over.
func (c *cluster) initialize(ctx context.Context) error {
	if exists(c.data) {
		return fmt.Errorf("%s exists but holds no PostgreSQL cluster: move it away", c.data)
	}
	half, passwordFile := c.data+".init", filepath.Join(c.Dir, "password.init")
	if err := os.RemoveAll(half); err != nil {
		return err
	}
	if err := os.Mkdir(half, 0o700); err != nil {
		return err
	}
	defer os.Remove(passwordFile)
	if err := os.WriteFile(passwordFile, []byte(c.password+"\n"), 0o600); err != nil {
		return err
	}
	if err := errors.Join(c.identity.own(half), c.identity.own(passwordFile)); err != nil {
		return err
	}
	args := []string{
		"--pgdata=" + half, "--username=" + user, "--pwfile=" + passwordFile,
		"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-instructions",
	}
	if c.Fsync {
		args = append(args, "--data-checksums")
	} else {
		args = append(args, "--no-sync")
	}
	initdb, err := spawn(c.command("initdb", args...), c.Log)
	if err != nil {
		return err
	}
	select {
	case <-initdb.done:
	case <-ctx.Done():
		initdb.kill()
		return fmt.Errorf("initdb: %w", context.Cause(ctx))
	}
	if initdb.err != nil {
		return fmt.Errorf("initdb: %w; its last lines: %s", initdb.err, initdb.log.tail())
	}
	return os.Rename(half, c.data)
}

// command runs a program of PostgreSQL's as the chosen user, away from this
// process's environment and working directory.
func (c *cluster) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(c.bin, program), args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + c.bin + ":/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	c.identity.apply(cmd.SysProcAttr)
	return cmd
}

// serverArgs are sized for a developer's machine of two cores.
func (c *cluster) serverArgs(port int) []string {
	settings := map[string]string{
		"listen_addresses":        host,
		"port":                    strconv.Itoa(port),
		"unix_socket_directories": "", // a path of at most 107 bytes, which Dir may exceed
		"cluster_name":            "jobledger",

		"shared_buffers":  "256MB",
		"max_connections": "100",
		"jit":             "off", // costs more than it saves on short statements

		"fsync":              onOff(c.Fsync),
		"full_page_writes":   onOff(c.Fsync),
		"synchronous_commit": "on",
		"wal_compression":    "on",
		"max_wal_size":       "4GB",

		"timezone":          "UTC",
		"log_timezone":      "UTC",
		"log_line_prefix":   "",
		"log_checkpoints":   "off",
		"logging_collector": "off",
		// Statements carry users' data, which belongs in no log.
		"log_min_error_statement": "panic",
	}
	maps.Copy(settings, c.Settings)
	args := []string{"-D", c.data}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

// awaitReady waits until the postmaster says "ready" in its pid file, which
// fills no log as connecting in a loop would, and then logs in once.
func (c *cluster) awaitReady(ctx context.Context, s *Server) error {
	for {
		pid, status := readPidFile(c.data)
		if pid == s.PID() && status == "ready" {
			break
		}
		select {
		case <-s.Done():
			return fmt.Errorf("%w; its last lines: %s", errEarlyExit, s.child.log.tail())
		default:
		}
		if err := sleep(ctx, pollInterval); err != nil {
			return fmt.Errorf("not ready: %w; its last lines: %s", err, s.child.log.tail())
		}
	}
	conn, err := pgconn.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return fmt.Errorf("log in: %w", err)
	}
	return conn.Close(ctx)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
