package nslab

import (
	"errors"
	"time"

	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/verbs"
)

// control is the workload.Control of a rank, over its connection to the launcher.
type control struct{ conn *launch.Conn }

func (c *control) Send(to int, msg []byte) error { return c.wrapErr(c.conn.Send(to, msg)) }

func (c *control) Recv(from int, timeout time.Duration) ([]byte, error) {
	msg, err := c.conn.Recv(from, timeout)
	return msg, c.wrapErr(err)
}

func (c *control) Barrier(timeout time.Duration) error { return c.wrapErr(c.conn.Barrier(timeout)) }
func (c *control) Mark(what string)                    { c.conn.Mark(what) }
func (c *control) Sample(s workload.Sample)            { c.conn.Sample(s) }

// wrapErr adds the errors of package workload that programs test for.
func (c *control) wrapErr(err error) error {
	switch {
	case errors.Is(err, launch.ErrEnded):
		return errors.Join(workload.ErrGone, err)
	case errors.Is(err, launch.ErrTimeout):
		return errors.Join(verbs.ErrTimeout, err)
	}
	return err
}
