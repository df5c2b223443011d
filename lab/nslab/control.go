package nslab

import (
	"errors"
	"time"

	"github.com/fabrictest/fabrictest/launch/rank"
	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/verbs"
)

// control is a program's way to the other ranks, over its process' channel.
type control struct{ conn *rank.Conn }

func (c *control) Send(to int, msg []byte) error { return c.own(c.conn.Send(to, msg)) }

func (c *control) Recv(from int, timeout time.Duration) ([]byte, error) {
	msg, err := c.conn.Recv(from, timeout)
	return msg, c.own(err)
}

func (c *control) Barrier(timeout time.Duration) error { return c.own(c.conn.Barrier(timeout)) }
func (c *control) Mark(what string)                    { c.conn.Mark(what) }
func (c *control) Sample(s workload.Sample)            { c.conn.Sample(s) }

// own gives errors the names by which programs know them.
func (c *control) own(err error) error {
	switch {
	case errors.Is(err, rank.ErrRankEnded):
		return errors.Join(workload.ErrGone, err)
	case errors.Is(err, rank.ErrTimeout):
		return errors.Join(verbs.ErrTimeout, err)
	}
	return err
}
