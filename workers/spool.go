package workers

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"jobledger/ledger"
)

// Bounds of a spool whose options do not say otherwise.
const (
	DefaultSpoolFiles = 10_000
	DefaultSpoolBytes = 1 << 30
)

const (
	spoolVersion = 1
	spoolSuffix  = ".completion"
	spoolBad     = ".bad"  // behind the name of what cannot be read
	spoolTemp    = ".part" // behind the name of what is not whole yet
	// maxSpoolFileBytes bounds what is read back: a message and its frame.
	maxSpoolFileBytes = ledger.MaxPayloadBytes + 8<<10
)

// ErrSpoolFull is returned when a spool's bounds leave no room for a completion.
var ErrSpoolFull = errors.New("workers: the spool is full")

// SpoolOptions say where completions are spooled, and for which ledger.
type SpoolOptions struct {
	// Dir holds the files; it is made if it is missing. It must be one provider's,
	// and nobody else's while the spool is open: the caller holds a lock.
	Dir string
	// Stream and SubjectPrefix name the ledger, so that no file reaches another.
	Stream, SubjectPrefix string
	MaxFiles              int   // 0: DefaultSpoolFiles
	MaxBytes              int64 // of all files together; 0: DefaultSpoolBytes
}

// A Spool keeps completions on disk that the stream has not acknowledged: one
// file for each, readable by its owner only, because it holds the claim that
// makes the completion valid. Its methods may be called by any number of
// goroutines.
type Spool struct {
	o SpoolOptions

	mu    sync.Mutex
	sizes map[string]int64 // of the files, by name
	bytes int64
	left  []string // what was found and nobody has taken yet, the oldest first
}

// OpenSpool opens a spool and finds what is in it. Files that were being written
// when their process ended are removed: what they were to hold was never
// promised to be there.
func OpenSpool(o SpoolOptions) (*Spool, error) {
	if o.Dir == "" || o.Stream == "" || o.SubjectPrefix == "" {
		return nil, errors.New("workers: SpoolOptions.Dir, Stream and SubjectPrefix are required")
	}
	if o.MaxFiles == 0 {
		o.MaxFiles = DefaultSpoolFiles
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultSpoolBytes
	}
	if o.MaxFiles < 0 || o.MaxBytes < 0 {
		return nil, fmt.Errorf("workers: SpoolOptions has the bounds %d files and %d bytes; expected 1 or more, or 0", o.MaxFiles, o.MaxBytes)
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("workers: make the spool: %w", err)
	}
	s := &Spool{o: o, sizes: map[string]int64{}}
	return s, s.scan()
}

func (s *Spool) scan() error {
	entries, err := os.ReadDir(s.o.Dir) // sorted by name, and names begin with the time
	if err != nil {
		return fmt.Errorf("workers: look into the spool: %w", err)
	}
	for _, e := range entries {
		switch {
		case strings.HasSuffix(e.Name(), spoolTemp):
			if err := os.Remove(filepath.Join(s.o.Dir, e.Name())); err != nil {
				return fmt.Errorf("workers: remove an unfinished file from the spool: %w", err)
			}
		case strings.HasSuffix(e.Name(), spoolSuffix):
			info, err := e.Info()
			if err != nil {
				return fmt.Errorf("workers: look into the spool: %w", err)
			}
			s.sizes[e.Name()] = info.Size()
			s.bytes += info.Size()
			s.left = append(s.left, e.Name())
		}
	}
	return nil
}

// Len returns how many completions are in the spool.
func (s *Spool) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sizes)
}

// takeLeft returns what earlier processes left, once.
func (s *Spool) takeLeft() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.left
	s.left = nil
	return left
}

// spoolHead is the first line of a file; what follows it is the entry's body.
type spoolHead struct {
	V       int    `json:"v"`
	Stream  string `json:"stream"`
	Prefix  string `json:"prefix"`
	Subject string `json:"subject"` // without the prefix
	ID      string `json:"id,omitempty"`
	SHA256  string `json:"sha256"` // of the body
}

// keep writes a completion to disk and returns its file's name once it is safe
// there. A full spool is ErrSpoolFull.
func (s *Spool) keep(m ledger.Message) (name string, err error) {
	digest := sha256.Sum256(m.Data)
	content, err := json.Marshal(spoolHead{
		spoolVersion, s.o.Stream, s.o.SubjectPrefix, m.Subject, m.ID, hex.EncodeToString(digest[:]),
	})
	if err != nil {
		return "", fmt.Errorf("workers: spool a completion: %w", err)
	}
	content = append(append(content, '\n'), m.Data...)
	name = fmt.Sprintf("%016x-%s%s", time.Now().UnixNano(), rand.Text(), spoolSuffix)
	if err := s.reserve(name, int64(len(content))); err != nil {
		return "", err
	}
	if err := writeDurably(s.o.Dir, name, content); err != nil {
		s.forget(name)
		return "", fmt.Errorf("workers: spool a completion: %w", err)
	}
	return name, nil
}

func (s *Spool) reserve(name string, size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sizes) >= s.o.MaxFiles || s.bytes+size > s.o.MaxBytes {
		return fmt.Errorf("%w: %s has %d files of at most %d, %d bytes of at most %d",
			ErrSpoolFull, s.o.Dir, len(s.sizes), s.o.MaxFiles, s.bytes, s.o.MaxBytes)
	}
	s.sizes[name] = size
	s.bytes += size
	return nil
}

func (s *Spool) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes -= s.sizes[name]
	delete(s.sizes, name)
}

// writeDurably makes a file that is there as a whole or not at all, also after a
// power cut.
func writeDurably(dir, name string, content []byte) (err error) {
	temp := filepath.Join(dir, name+spoolTemp)
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeIfThere(temp))
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, filepath.Join(dir, name)); err != nil {
		return err
	}
	return syncDir(dir)
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// drop removes a completion that the stream has acknowledged. Should it come
// back after a power cut, the fold recognises the repetition.
func (s *Spool) drop(name string) error {
	s.forget(name)
	if err := removeIfThere(filepath.Join(s.o.Dir, name)); err != nil {
		return fmt.Errorf("workers: remove a completion from the spool: %w", err)
	}
	return nil
}

// A spoolFault says why a file of the spool cannot be used. One that is bad will
// never be; another is for another ledger.
type spoolFault struct {
	bad bool
	why string
}

func (e *spoolFault) Error() string { return e.why }

// read returns the message in a file; a *spoolFault says that there is none for
// this ledger.
func (s *Spool) read(name string) (ledger.Message, error) {
	f, err := os.Open(filepath.Join(s.o.Dir, name))
	if err != nil {
		return ledger.Message{}, fmt.Errorf("workers: read the spool: %w", err)
	}
	content, err := io.ReadAll(io.LimitReader(f, maxSpoolFileBytes))
	if err = errors.Join(err, f.Close()); err != nil {
		return ledger.Message{}, fmt.Errorf("workers: read the spool: %w", err)
	}
	line, body, _ := bytes.Cut(content, []byte("\n"))
	var head spoolHead
	if err := json.Unmarshal(line, &head); err != nil {
		return ledger.Message{}, &spoolFault{bad: true, why: fmt.Sprintf("its first line is no description: %v", err)}
	}
	digest := sha256.Sum256(body)
	switch {
	case head.V != spoolVersion:
		return ledger.Message{}, &spoolFault{why: fmt.Sprintf("its version is %d; this program reads %d", head.V, spoolVersion)}
	case head.SHA256 != hex.EncodeToString(digest[:]):
		return ledger.Message{}, &spoolFault{bad: true, why: "its content does not have the digest that its first line says"}
	case head.Stream != s.o.Stream || head.Prefix != s.o.SubjectPrefix:
		return ledger.Message{}, &spoolFault{why: fmt.Sprintf("it is for the ledger %s (%s.…), and this one is %s (%s.…)",
			head.Stream, head.Prefix, s.o.Stream, s.o.SubjectPrefix)}
	}
	return ledger.Message{Subject: head.Subject, ID: head.ID, Data: body}, nil
}

// setAside takes a file out of the spool that cannot be read, and keeps it for a
// person under the name that it returns.
func (s *Spool) setAside(name string) (string, error) {
	s.forget(name)
	aside := filepath.Join(s.o.Dir, name+spoolBad)
	if err := os.Rename(filepath.Join(s.o.Dir, name), aside); err != nil {
		return "", fmt.Errorf("workers: set a file of the spool aside: %w", err)
	}
	return aside, nil
}
