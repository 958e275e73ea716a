package core

import (
	"context"
	"fmt"
	"log/slog"
)

// raftLogger passes raft's log lines to the application's logger. Fatal must not end the
// process: it panics like raft's other assertions, and the loop recovers and stops the
// member.
type raftLogger struct{ to *slog.Logger }

func (l raftLogger) log(level slog.Level, text func() string) {
	if l.to.Enabled(context.Background(), level) {
		l.to.Log(context.Background(), level, text(), "from", "raft")
	}
}

func print(v []any) func() string { return func() string { return fmt.Sprint(v...) } }

func printf(format string, v []any) func() string {
	return func() string { return fmt.Sprintf(format, v...) }
}

func (l raftLogger) Debug(v ...any)              { l.log(slog.LevelDebug, print(v)) }
func (l raftLogger) Debugf(f string, v ...any)   { l.log(slog.LevelDebug, printf(f, v)) }
func (l raftLogger) Info(v ...any)               { l.log(slog.LevelDebug, print(v)) }
func (l raftLogger) Infof(f string, v ...any)    { l.log(slog.LevelDebug, printf(f, v)) }
func (l raftLogger) Warning(v ...any)            { l.log(slog.LevelWarn, print(v)) }
func (l raftLogger) Warningf(f string, v ...any) { l.log(slog.LevelWarn, printf(f, v)) }
func (l raftLogger) Error(v ...any)              { l.log(slog.LevelError, print(v)) }
func (l raftLogger) Errorf(f string, v ...any)   { l.log(slog.LevelError, printf(f, v)) }
func (l raftLogger) Fatal(v ...any)              { l.Panic(v...) }
func (l raftLogger) Fatalf(f string, v ...any)   { l.Panicf(f, v...) }
func (l raftLogger) Panic(v ...any)              { l.Error(v...); panic(fmt.Sprint(v...)) }
func (l raftLogger) Panicf(f string, v ...any)   { l.Errorf(f, v...); panic(fmt.Sprintf(f, v...)) }
