package natsserver

import (
	"fmt"
	"log/slog"
)

// logger passes the server's lines to slog. Notices are details of a child
// component, hence debug.
type logger struct {
	log *slog.Logger
	// fatal has room for the first fatal line. The server goes on, not ready,
	// after logging one and expects its logger to end the process; ours gives
	// the reason to Start instead.
	fatal chan string
}

func (l *logger) Noticef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *logger) Warnf(format string, v ...any)   { l.log.Warn(fmt.Sprintf(format, v...)) }
func (l *logger) Errorf(format string, v ...any)  { l.log.Error(fmt.Sprintf(format, v...)) }
func (l *logger) Debugf(format string, v ...any)  { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *logger) Tracef(format string, v ...any)  { l.log.Debug(fmt.Sprintf(format, v...)) }

func (l *logger) Fatalf(format string, v ...any) {
	line := fmt.Sprintf(format, v...)
	l.log.Error(line)
	select {
	case l.fatal <- line:
	default: // the first reason is the one that counts
	}
}
