package core

import "github.com/conclave-go/conclave/internal/tickets"

// Backlog is the calls of a process without an outcome.
type Backlog = tickets.Backlog

// Backlog returns the calls that the core has.
func (c *Core) Backlog() Backlog { return c.tickets.Backlog() }
