package main

import (
	"crypto/x509"
	"fmt"
	"text/tabwriter"
	"time"
)

// accessView is which group is shown, and how it is reached.
type accessView struct {
	Group string `json:"group"` // "": an agent of an earlier build answers
	TLS   bool   `json:"tls"`
	// NotAfter is when the first certificate expires of those that the members have presented; with --http that of the agent.
	NotAfter *time.Time `json:"certificateNotAfter"` // null: plaintext, or no member has presented one
}

// access is how this command has reached members.
func (p *program) access() accessView {
	v := accessView{Group: p.connection.group, TLS: p.secured != nil}
	if v.TLS {
		v.NotAfter = moment(p.secured.presentedNotAfter())
	}
	return v
}

// access is how others reach the agent.
func (o *agentOptions) access() accessView {
	v := accessView{Group: o.cfg.Group, TLS: o.certificates != nil}
	if v.TLS {
		v.NotAfter = moment(o.certificates.expiry().certificate)
	}
	return v
}

// moment is a time in JSON; nil: none.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func printAccess(w *tabwriter.Writer, v accessView) {
	if v.Group == "" {
		return
	}
	tls := "no"
	switch {
	case v.NotAfter != nil:
		tls = "yes, with a certificate that is valid until " + v.NotAfter.Format(time.RFC3339)
	case v.TLS:
		tls = "yes"
	}
	fmt.Fprintf(w, "group:\t%s\ntls:\t%s\n", name(v.Group), tls)
}

// presented notes the certificates of a process that was dialed.
func (c *certificates) presented(chain []*x509.Certificate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, presented := range chain {
		c.others = earlier(c.others, presented.NotAfter)
	}
}

func (c *certificates) presentedNotAfter() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.others
}
