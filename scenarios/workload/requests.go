package workload

import (
	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// Kinds of requests.
const (
	requestMessage uint8 = iota + 1 // a send or a write
	requestRead
	requestNotice
	requestAdd
)

// requestCompleted handles the completion of a request and of unsignaled ones before it.
func (c *conn) requestCompleted(wc *verbs.WC) {
	status, err := c.sq.Complete(wc, c.requestSucceeded)
	if err != nil {
		c.violation(traffic.Completion, "%v", err)
	}
	if status != verbs.WCSuccess {
		c.fail(status)
	}
	c.schedule()
}

// requestSucceeded handles a successful request.
func (c *conn) requestSucceeded(r traffic.Request) {
	c.noteCarriedData()
	c.log.last = c.now
	switch r.Kind {
	case requestMessage:
		c.out.messageCompleted(r)
	case requestRead:
		c.in.readCompleted(r.Seq)
	case requestAdd:
		c.add.handleCompletion(r.Seq)
	}
}
