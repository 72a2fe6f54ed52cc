// Package httpstatus lets whoever wraps an http.Handler see the answer's status.
package httpstatus

import "net/http"

// A Writer is an http.ResponseWriter that remembers the answer's status.
type Writer struct {
	http.ResponseWriter
	status int
}

// New returns a Writer that writes to w.
func New(w http.ResponseWriter) *Writer { return &Writer{ResponseWriter: w} }

// Status returns the status, which is 200 if none was written.
func (w *Writer) Status() int {
	if w.status == 0 {
		return http.StatusOK
	}
	return w.status
}

// WriteHeader implements http.ResponseWriter.
func (w *Writer) WriteHeader(status int) {
	// Informational answers come before the one that counts.
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *Writer) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
