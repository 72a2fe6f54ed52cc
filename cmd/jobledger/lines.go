package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"jobledger/ledger"
)

// maxLineBytes bounds a line of a file of jobs: a request with an owner and a
// key beside it. A longer one is passed over without being kept.
const maxLineBytes = ledger.MaxRequestBytes + 4<<10

// A line is one of a file of jobs, without its end.
type line struct {
	number int // from 1
	text   []byte
	bytes  int64 // that it takes in the file, its end included
	long   bool  // text is only its beginning
}

// lineReader reads lines one by one and never holds more than one.
type lineReader struct {
	r      *bufio.Reader
	number int
}

func newLineReader(r io.Reader) *lineReader {
	const buffer = 64 << 10
	return &lineReader{r: bufio.NewReaderSize(r, buffer)}
}

// next returns the next line that is not blank, io.EOF after the last.
func (l *lineReader) next() (line, error) {
	for {
		ln, err := l.read()
		if err != nil || ln.long || len(bytes.TrimSpace(ln.text)) > 0 {
			return ln, err
		}
	}
}

// A lineOrError is what a read has brought.
type lineOrError struct {
	line
	err error
}

// stream reads in a goroutine of its own until an error, such as io.EOF, has
// been received or ctx ends. Nothing can wake a read from a pipe that nobody
// writes to: after ctx that goroutine may last as long as the process.
func (l *lineReader) stream(ctx context.Context) <-chan lineOrError {
	out := make(chan lineOrError)
	go func() {
		for {
			ln, err := l.next()
			select {
			case out <- lineOrError{ln, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return out
}

func (l *lineReader) read() (line, error) {
	l.number++
	ln := line{number: l.number}
	for {
		part, err := l.r.ReadSlice('\n')
		ln.bytes += int64(len(part))
		if room := maxLineBytes + len("\r\n") - len(ln.text); len(part) > room {
			part, ln.long = part[:room], true
		}
		ln.text = append(ln.text, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && ln.bytes > 0: // the last line has no end
		case errors.Is(err, io.EOF):
			return line{}, io.EOF
		case err != nil:
			return line{}, fmt.Errorf("read line %d: %w", l.number, err)
		}
		ln.text = bytes.TrimRight(ln.text, "\r\n")
		return ln, nil
	}
}
