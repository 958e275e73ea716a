package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/conclave-go/conclave"
)

const defaultAddr = "127.0.0.1:7001"

// connection is what all commands need to reach the group.
type connection struct {
	addrs   []string
	group   string
	further string // group of it; "": the default one
	tls     tlsFiles
	timeout time.Duration
}

func (c *connection) define(flags *pflag.FlagSet) {
	flags.StringSliceVar(&c.addrs, "addr", []string{defaultAddr}, "`addresses` of any members, separated by commas")
	flags.StringVar(&c.group, "group", "conclave", "`name` of the group")
	flags.StringVar(&c.further, "further-group", "", "`name` of the further group to use, see conclave groups; empty: the default group")
	flags.DurationVar(&c.timeout, "timeout", 10*time.Second, "time limit for reaching the group, and then for each call")
	c.tls.define(flags)
}

// config is how the members are reached.
func (p *program) config() (*conclave.ClientConfig, error) {
	failing := false
	secure, err := newCertificates(&p.connection.tls, func(_ inUse, err error) {
		switch {
		case err != nil:
			p.say("conclave: %s: the last usable certificates remain in use\n", printable(err.Error()))
		case failing:
			p.say("conclave: certificates loaded\n")
		}
		failing = err != nil
	})
	if err != nil {
		return nil, err
	}
	p.secured = secure
	return &conclave.ClientConfig{
		Addresses: p.connection.addrs, Group: p.connection.group, TLS: secure.config(), Insecure: p.connection.tls.insecure,
	}, nil
}

// groupClient is a client, and the group of it that the command uses.
type groupClient struct {
	*conclave.Client
	*conclave.Group
}

// dial connects to the group. A signal or the time limit end the attempt.
func (p *program) dial(ctx context.Context, edit ...func(*conclave.ClientConfig)) (groupClient, error) {
	cfg, err := p.config()
	if err != nil {
		return groupClient{}, err
	}
	for _, e := range edit {
		e(cfg)
	}
	limited, cancel := p.within(ctx)
	defer cancel()
	client, err := conclave.Dial(limited, cfg)
	if err != nil {
		return groupClient{}, cause(ctx, err)
	}
	used := client.Group
	if p.connection.further != "" {
		used = client.WithGroup(p.connection.further)
	}
	return groupClient{client, used}, nil
}

// within bounds one call.
func (p *program) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, p.connection.timeout)
}

// cause adds the signal that ended a call, where the library has not.
func cause(ctx context.Context, err error) error {
	var s interrupted
	if err != nil && !errors.As(err, &s) && errors.As(context.Cause(ctx), &s) {
		return fmt.Errorf("%w: %w", s, err)
	}
	return err
}

// connected runs f with a client, which it closes then: what f has acquired is released.
func (p *program) connected(ctx context.Context, f func(c groupClient) error, edit ...func(*conclave.ClientConfig)) error {
	c, err := p.dial(ctx, edit...)
	if err != nil {
		return err
	}
	defer p.closeClient(c)
	return cause(ctx, f(c))
}

// call is connected, with the time limit of a call for f.
func (p *program) call(ctx context.Context, f func(ctx context.Context, c groupClient) error) error {
	return p.connected(ctx, func(c groupClient) error {
		limited, cancel := p.within(ctx)
		defer cancel()
		return f(limited, c)
	})
}

// closeClient closes a client whose sessions hold nothing that matters any more.
func (p *program) closeClient(c groupClient) {
	ctx, cancel := context.WithTimeout(context.Background(), min(p.connection.timeout, 3*time.Second))
	defer cancel()
	_ = c.Close(ctx) // if it fails, the session expires
}
