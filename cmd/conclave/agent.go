package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/logqueue"
	"github.com/conclave-go/conclave/internal/wire"
)

type agentOptions struct {
	cfg     conclave.Config
	memory  bool
	leave   bool
	http    string
	console string // file with a password
	keys    bool   // the console shows keys
	consul  consulOptions
	log     string
	lines   *logqueue.Queue // of cfg.Logger: the reader of standard error may stop

	groupJobs    []string      // of --measured-group-jobs
	certificates *certificates // nil: plaintext
}

func (p *program) agentCommand() *cobra.Command {
	var o agentOptions
	cmd := &cobra.Command{
		Use: "agent", Args: exactly(), Short: "Run a member of a group, until SIGTERM",
		Long: "Run a member of a group, until SIGTERM or Ctrl-C: then it shuts down gracefully and stays in the group. A second signal ends it at once. " +
			"SIGHUP has it read --cert, --key and --ca again, as each new connection does, and log until when they are valid.\n\n" +
			"Without --join it forms a group of itself. To form one of three, start three with --join and the addresses of all and --expect 3. Later ones " +
			"need --join only.\n\n" +
			"The HTTP address serves /livez and /readyz for probes, /metrics for Prometheus and /console/ for people. The console is read-only and for " +
			"browsers on the same machine, unless --console-password-file or CONCLAVE_CONSOLE_PASSWORD is set: then any browser with the password may use it and act, " +
			"and conclave leave with the password has the member leave.\n\n" +
			"--consul-http serves part of Consul's HTTP API to clients on the same machine; with --consul-token-file or CONCLAVE_CONSUL_TOKEN to any client " +
			"with the token, which may do everything. --consul-group NAME has it serve a further group, which the agent creates if it does not exist: give all agents the same.\n\n" +
			"The exit code is 0 after a graceful end, 2 for invalid flags, 3 if the member was removed from its group, so that no restart helps, 4 to 6 if it was " +
			"to leave and has not, or may not have, left, and 1 otherwise.",
		Annotations: map[string]string{fromEnvironment: "yes", reloads: "yes"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			switch dir, memory := p.given(cmd, "dir"), p.given(cmd, "memory"); { // the image of the Dockerfile sets CONCLAVE_DIR
			case o.memory && memory && !dir:
				o.cfg.Dir = ""
			case o.cfg.Dir != "" && dir && !memory:
				o.memory = false
			}
			if err = o.complete(p); err != nil {
				return err
			}
			defer o.lines.Close(logGrace)
			return p.agent(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.cfg.Dir, "dir", "", "data `directory` of this member alone; created if missing (required, or --memory)")
	f.BoolVar(&o.memory, "memory", false, "keep the state in memory: a restarted process is a new member")
	f.BoolVar(&o.cfg.Small, "small", false, "take less disk and memory, for a small machine: at most 10 MB of disk for a small state, and fewer entries for members that lag")
	f.StringVar(&o.cfg.Bind, "bind", defaultAddr, "`address` to listen on, for members and clients")
	f.StringVar(&o.cfg.Advertise, "advertise", "", "`address` that others dial (default: that of --bind)")
	f.StringSliceVar(&o.cfg.Join, "join", nil, "`addresses` of other members, separated by commas")
	f.IntVar(&o.cfg.Expect, "expect", 0, "form a new group of this many members, if none exists (default: 1 without --join; with it, form none)")
	f.IntVar(&o.cfg.Voters, "voters", 3, "how many members of a new group vote: 1, 3, 5 or 7")
	f.IntVar(&o.cfg.LeaderPriority, "leader-priority", 0, "transfer leadership to voters with a higher one: -1 for a machine that should not lead")
	f.StringVar(&o.cfg.Name, "name", "", "`name` of this member for people (default: the host's name)")
	f.BoolVar(&o.leave, "leave", false, "leave the group permanently at the end")
	f.StringVar(&o.http, "http", defaultHTTP, "`address` for probes, metrics, the console and conclave leave; none: do not serve them")
	f.StringVar(&o.console, "console-password-file", "", "`file` with the password of the console")
	f.BoolVar(&o.keys, "console-keys", false, "show the group's keys and the beginnings of their values in the console")
	f.StringSliceVar(&o.cfg.MeasuredJobs, "measured-jobs", nil, "`names` of jobs for metrics of their own, separated by commas: when each was run to its end last")
	f.StringSliceVar(&o.groupJobs, "measured-group-jobs", nil, "`GROUP=JOB,…`: jobs of further groups for metrics of their own, as --measured-jobs has those of the default one")
	o.consul.flags(f)
	f.StringVar(&o.log, "log", "text", "`format` of the log on standard error: text or json")
	return cmd
}

// complete checks the flags, and takes over those that all commands have.
func (o *agentOptions) complete(p *program) (err error) {
	switch {
	case o.cfg.Dir == "" && !o.memory:
		return usagef("missing --dir, the data directory of this member, or --memory")
	case o.cfg.Dir != "" && o.memory:
		return usagef("--dir and --memory exclude each other; the environment may set them too, as CONCLAVE_DIR and CONCLAVE_MEMORY")
	case o.log != "text" && o.log != "json":
		return usagef("--log %q: want text or json", o.log)
	}
	if o.cfg.MeasuredGroupJobs, err = measuredGroupJobs(o.groupJobs); err != nil {
		return err
	}
	o.cfg.Group, o.cfg.Insecure = p.connection.group, p.connection.tls.insecure
	o.cfg.Logger, o.lines = logqueue.New(newLogger(p.stderr, o.log))
	o.certificates, err = newCertificates(&p.connection.tls, logCertificates(o.cfg.Logger))
	o.cfg.TLS = o.certificates.config()
	return err // Open validates the rest and reports all faults at once
}

// measuredGroupJobs returns the jobs of each group. The first = ends the group's name, so a group with one in its name cannot be named.
func measuredGroupJobs(pairs []string) (map[string][]string, error) {
	all := make(map[string][]string)
	for _, pair := range pairs {
		group, job, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, usagef("--measured-group-jobs: want GROUP=JOB, got %q", pair)
		}
		all[group] = append(all[group], job)
	}
	return all, nil
}

func newLogger(w io.Writer, format string) *slog.Logger {
	if format == "json" {
		return slog.New(flagLog{slog.NewJSONHandler(w, nil)})
	}
	return slog.New(flagLog{slog.NewTextHandler(w, nil)})
}

// agent runs a member until ctx is done, or it has stopped.
func (p *program) agent(ctx context.Context, o agentOptions) error {
	log := o.cfg.Logger
	l, err := net.Listen("tcp", o.cfg.Bind)
	if err != nil {
		return fmt.Errorf("--bind: %w", err)
	}
	o.cfg.Listener = l // to log the port before the group has formed
	s, err := newAgentServer(o, log)
	if err != nil {
		_ = l.Close()
		return err
	}
	defer s.close()
	consul, err := newConsulServer(o.consul, log)
	if err != nil {
		_ = l.Close()
		return err
	}
	defer consul.close()
	log.Info("listening", "addr", l.Addr().String(), "http", s.addr(), "consul", consul.addr(),
		"build", conclave.Version(), "level", wire.FeatureLevel)
	defer p.reloading(o.certificates, log)()
	node, err := conclave.Open(ctx, &o.cfg)
	if err != nil && ctx.Err() != nil {
		return nil // interrupted before the member was open
	}
	if err != nil {
		return err
	}
	s.opened(node)
	consul.opened(node)
	log.Info("open", "member", node.Status().ID.String(), "name", node.Status().Name, "group", o.cfg.Group, "members", len(node.Status().Members))
	select {
	case <-ctx.Done():
	case <-node.Done():
		if !errors.Is(node.Err(), conclave.ErrClosed) {
			return node.Err()
		}
		return s.leftBy(ctx)
	}
	return shutDown(node, o.leave, log)
}

// leftBy ends an agent whose node conclave leave has closed, with what has come of that.
func (s *agentServer) leftBy(ctx context.Context) (err error) {
	select {
	case err = <-s.left:
	case <-ctx.Done():
	}
	s.close() // after the answer
	s.log.Info("closed")
	return notLeft(err)
}

// notLeft is the error of an agent that was to leave. Its process must not end as after a success: a supervisor would
// not start it again, and the group would count a voter that is down.
func notLeft(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, conclave.ErrUnknown):
		return fmt.Errorf("the member may still belong to the group: %w", err)
	}
	return fmt.Errorf("the member has not left the group: %w", err)
}

// reloading reads the certificates again at each SIGHUP, until stop. It reports those that the agent begins with.
func (p *program) reloading(c *certificates, log *slog.Logger) (stop func()) {
	if c != nil {
		c.reloadNow()
	}
	done := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-p.hangups:
			case <-done:
				return
			}
			if c == nil {
				log.Info("SIGHUP without effect: the agent has no certificates")
				continue
			}
			c.reloadNow()
		}
	})
	return func() {
		close(done)
		reader.Wait()
	}
}

// The limits of a graceful end. A supervisor should wait longer before it kills the process.
const (
	leaveLimit = 20 * time.Second
	closeLimit = 5 * time.Second
	logGrace   = time.Second // for the reader of the log
)

func shutDown(node *conclave.Node, leave bool, log *slog.Logger) error {
	log.Info("shutting down gracefully: another signal ends the process at once")
	var left error
	if leave {
		ctx, cancel := context.WithTimeout(context.Background(), leaveLimit)
		defer cancel()
		if left = notLeft(node.Leave(ctx)); left == nil {
			log.Info("left the group")
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	if err := node.Close(ctx); err != nil {
		log.Warn("graceful shutdown incomplete", "error", err)
	}
	log.Info("closed")
	return left
}
