package pgserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
)

// BinEnv names the environment variable with the folder of PostgreSQL's
// programs, for installations in unusual places.
const BinEnv = "JOBLEDGER_POSTGRES_BIN"

// debianPattern is where Debian and Ubuntu keep them, one folder a version.
const debianPattern = "/usr/lib/postgresql/*/bin"

// ErrNotInstalled: PostgreSQL's server programs were not found.
var ErrNotInstalled = errors.New("PostgreSQL's server programs (initdb, postgres) were not found")

// findBinaries returns the folder of PostgreSQL's programs: BinEnv's if it is
// set, the cluster's own major version's if version is not "", else the newest.
func findBinaries(version string) (string, error) {
	if bin := os.Getenv(BinEnv); bin != "" {
		if !hasPrograms(bin) {
			return "", fmt.Errorf("%w in %s, which %s names", ErrNotInstalled, bin, BinEnv)
		}
		return filepath.Abs(bin)
	}
	installed, err := debianInstallations()
	if err != nil {
		return "", err
	}
	if version != "" && len(installed) > 0 {
		for _, bin := range installed {
			if debianVersion(bin) == version {
				return bin, nil
			}
		}
		return "", fmt.Errorf("the cluster was made by PostgreSQL %s, but installed is only %v: install postgresql-%s, or move the data directory away", version, installed, version)
	}
	if len(installed) > 0 {
		return installed[0], nil
	}
	if program, err := exec.LookPath("postgres"); err == nil {
		if program, err = filepath.EvalSymlinks(program); err == nil && hasPrograms(filepath.Dir(program)) {
			return filepath.Abs(filepath.Dir(program))
		}
	}
	return "", fmt.Errorf("%w: run scripts/setup.sh to install them, or set %s to their folder", ErrNotInstalled, BinEnv)
}

// debianInstallations returns the complete ones, newest first.
func debianInstallations() ([]string, error) {
	found, err := filepath.Glob(debianPattern)
	if err != nil {
		return nil, fmt.Errorf("look for PostgreSQL: %w", err)
	}
	found = slices.DeleteFunc(found, func(bin string) bool { return !hasPrograms(bin) })
	slices.SortFunc(found, func(a, b string) int {
		return versionNumber(b) - versionNumber(a)
	})
	return found, nil
}

func debianVersion(bin string) string { return filepath.Base(filepath.Dir(bin)) }

// versionNumber is 0 for a folder that is not named after a major version.
func versionNumber(bin string) int {
	number, err := strconv.Atoi(debianVersion(bin))
	if err != nil {
		return 0
	}
	return number
}

func hasPrograms(bin string) bool {
	return exists(bin, "initdb") && exists(bin, "postgres")
}
