package pgserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	osuser "os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// identity is as whom the server runs. The zero value is: as this process.
type identity struct {
	drop     bool // to uid and gid; we are root
	uid, gid uint32
	// ambient capabilities let the server pass through directories that are
	// closed to its user, such as below /root or a fresh temporary one.
	ambient []uintptr
}

// chooseIdentity keeps this process's user unless that is root, as whom
// PostgreSQL refuses to run.
func chooseIdentity(paths ...string) (identity, error) {
	if os.Geteuid() != 0 {
		return identity{}, nil
	}
	account, err := unprivilegedUser()
	if err != nil {
		return identity{}, err
	}
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		return identity{}, fmt.Errorf("user %s: %w", account.Username, err)
	}
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		return identity{}, fmt.Errorf("user %s: %w", account.Username, err)
	}
	id := identity{drop: true, uid: uint32(uid), gid: uint32(gid)}
	for _, path := range paths {
		closed, err := id.closedParent(path)
		if err != nil {
			return identity{}, err
		}
		if closed == "" {
			continue
		}
		capability, err := searchCapability()
		if err != nil {
			return identity{}, fmt.Errorf("%s is closed to user %s, as whom PostgreSQL runs: %w", closed, account.Username, err)
		}
		id.ambient = []uintptr{capability}
	}
	return id, nil
}

func unprivilegedUser() (*osuser.User, error) {
	for _, name := range []string{"postgres", "nobody"} {
		account, err := osuser.Lookup(name)
		if err == nil && account.Uid != "0" {
			return account, nil
		}
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor a user nobody: run as another user")
}

// closedParent returns the first directory above path that id may not pass
// through, "" if there is none. It reads the mode bits; where access lists
// say otherwise, PostgreSQL's own message will tell.
func (id identity) closedParent(path string) (string, error) {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return "", fmt.Errorf("look at the directories above the cluster: %w", err)
		}
		if !id.mayPass(info) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", nil
		}
	}
}

func (id identity) mayPass(info fs.FileInfo) bool {
	owner := info.Sys().(*syscall.Stat_t)
	mode := info.Mode().Perm()
	switch {
	case owner.Uid == id.uid:
		return mode&0o100 != 0
	case owner.Gid == id.gid:
		return mode&0o010 != 0
	default:
		return mode&0o001 != 0
	}
}

// searchCapability returns the weaker of two capabilities that open closed
// directories, of those that this process has: containers often keep only the
// stronger one.
func searchCapability() (uintptr, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // the kernel fills two for this version
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, fmt.Errorf("read this process's capabilities: %w", err)
	}
	for _, capability := range []uintptr{unix.CAP_DAC_READ_SEARCH, unix.CAP_DAC_OVERRIDE} {
		if data[0].Permitted&(1<<capability) != 0 {
			return capability, nil
		}
	}
	return 0, errors.New("this process has no capability to pass through it: choose another directory, or run as another user")
}

// apply makes a command run as id.
func (id identity) apply(attr *syscall.SysProcAttr) {
	if !id.drop {
		return
	}
	attr.Credential = &syscall.Credential{Uid: id.uid, Gid: id.gid, Groups: []uint32{}}
	attr.AmbientCaps = id.ambient
}

// own gives path and everything below it to id, unless it has path already.
func (id identity) own(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	if !id.drop {
		if uid := os.Geteuid(); owner != uint32(uid) {
			return fmt.Errorf("%s belongs to uid %d, but this process runs as uid %d: run as that user, or choose another directory", path, owner, uid)
		}
		return nil
	}
	if owner == id.uid {
		return nil
	}
	return filepath.WalkDir(path, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(name, int(id.uid), int(id.gid))
	})
}
