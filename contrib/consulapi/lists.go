package consulapi

import (
	"context"

	"github.com/conclave-go/conclave"
)

// A blocking query of sessions, checks or nodes waits for the next change of any of them, as this node
// sees them: see [conclave.Group.AwaitChange]. The index of its answer is the number of the state that it
// was made from, or of an earlier one.

// awaitList asks whether the request may read the resource, begins the read of a list, and sets the
// answer's index.
func (c *call) awaitList(resource string) error {
	c.stale = false // what may be stale may be current
	if err := c.authorize(Read, resource); err != nil {
		return err
	}
	if c.index != 0 {
		if err := c.listChange(func(context.Context) bool { return false }); err != nil {
			return err
		}
		if err := c.authorize(Read, resource); err != nil { // it may have been revoked meanwhile
			return err
		}
	}
	return c.numbered()
}

// numbered sets the answer's index. It comes before the read of what is listed.
func (c *call) numbered() error {
	ctx, cancel := c.patience()
	defer cancel()
	number, err := c.group.AwaitChange(ctx, 0)
	if err == nil {
		c.meta(number)
	}
	return err
}

// listChange blocks until the lists are not in the state of ?index, and unchanged reports false of what is
// read; or as block says.
func (c *call) listChange(unchanged func(context.Context) bool) error {
	return c.block(func(ctx context.Context) error {
		for number := c.index; ; {
			var err error
			number, err = c.group.AwaitChange(ctx, number)
			switch {
			case c.isOver(ctx, err):
				return nil
			case err != nil:
				return err
			case !unchanged(ctx):
				return nil
			}
		}
	})
}

// unchangedSession reports that a session is as it was at ?index: it existed then, and exists. One that
// does not exist may have ended since.
func (c *call) unchangedSession(ctx context.Context, id conclave.SessionID) bool {
	info, err := c.group.SessionInfo(ctx, id, conclave.Stale())
	return err == nil && info.CreateIndex <= c.index
}
