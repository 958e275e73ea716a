package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
)

// The library's errors and log lines name the settings of its configuration. Users of this program have flags for them.

// inFlags has a text of the library name flags.
func inFlags(text string) string { return flagNames.Replace(text) }

// flagNames has what the library says before what this program says. At each position of a text the first pair that fits counts.
var flagNames = strings.NewReplacer(
	"set TLS, or Insecure if", "set --cert, --key and --ca, or --insecure if",
	"set TLS on every member and client", "set --cert, --key and --ca on every member and client",
	"set RootCAs in the client's TLS to", "set --ca to",
	"set RootCAs in Config.TLS to", "set --ca to",
	"set RootCAs, or ClientCAs, in Config.TLS to", "set --ca to",
	"set ServerName in the client's TLS", "set --servername",
	"set ServerName in Config.TLS", "set --servername",
	"the addresses of members that this client has", "--addr",
	"check the host and port in Addresses", "check the host and port in --addr",
	"call Leave there", "run conclave leave there",
	"set Advertise to", "set --advertise to",
	"set Bind to an address of this machine, and Advertise to", "set --bind to an address of this machine, and --advertise to",
	"set the same Config.Group", "set the same --group",
	"set Config.Group or use another Dir", "set --group or use another --dir",
	"set the same Expect everywhere", "set the same --expect everywhere",
	"set the same Voters everywhere", "set the same --voters everywhere",
	"Expect and Voters must be the same everywhere", "--expect and --voters must be the same everywhere",
	"Expect is larger than Voters", "--expect is larger than --voters",
	"set Expect to the number of", "set --expect to the number of",
	"with one of their addresses in Join", "with one of their addresses in --join",
	"no Dir: after a restart", "no --dir: after a restart",
	"the former one after ReplaceAfter", "the former one after --replace-after",
	"when ReplaceAfter has passed", "when --replace-after has passed",
	"set Dir to", "set --dir to",
	"choose another Bind", "choose another --bind",
	"Config.Advertise", "--advertise",
	"Config.Join", "--join",
	"Join must be empty: set Expect to", "--join must be empty: set --expect to",
	"use that one, or change it with Resize", "set --of to that one",
	" or NoTTL, got", ", got",
	"invalid Addresses:", "invalid --addr:",
	"invalid Advertise:", "invalid --advertise:",
	"invalid Bind:", "invalid --bind:",
	"invalid Expect:", "invalid --expect:",
	"invalid Group:", "invalid --group:",
	"invalid Join:", "invalid --join:",
	"invalid Name:", "invalid --name:",
	"LeaderPriority:", "--leader-priority:",
	"name its jobs in MeasuredJobs", "name its jobs with --measured-jobs",
	"with those of MeasuredGroupJobs", "with those of --measured-group-jobs",
	"MeasuredGroupJobs:", "--measured-group-jobs:",
	"MeasuredJobs:", "--measured-jobs:",
	"invalid RemoveAfter:", "invalid --remove-after:",
	"invalid ReplaceAfter:", "invalid --replace-after:",
	"invalid TTL:", "invalid --ttl:",
	"invalid Voters:", "invalid --voters:",
)

// flagLog is a handler whose lines name flags in place of settings.
type flagLog struct{ slog.Handler }

// Handle has the message and what advises an operator name flags, not what others have named.
func (h flagLog) Handle(ctx context.Context, r slog.Record) error {
	line := slog.NewRecord(r.Time, r.Level, inFlags(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		line.AddAttrs(attrInFlags(a))
		return true
	})
	return h.Handler.Handle(ctx, line)
}

func (h flagLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	named := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		named[i] = attrInFlags(a)
	}
	return flagLog{h.Handler.WithAttrs(named)}
}

func (h flagLog) WithGroup(name string) slog.Handler { return flagLog{h.Handler.WithGroup(name)} }

// advising are the attributes whose text is the library's.
var advising = []string{"change", "error", "reason", "remedy"}

func attrInFlags(a slog.Attr) slog.Attr {
	if !slices.Contains(advising, a.Key) {
		return a
	}
	switch v := a.Value.Resolve(); v.Kind() {
	case slog.KindString:
		return slog.String(a.Key, inFlags(v.String()))
	case slog.KindAny:
		if err, ok := v.Any().(error); ok {
			return slog.String(a.Key, inFlags(err.Error()))
		}
	}
	return a
}
