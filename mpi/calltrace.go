package mpi

import (
	"fmt"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/mpi/misuse"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/window"
)

// Call is a call of a program of ranks, for Options.OnCall. Later calls may complete its receives.
type Call struct {
	explore.Place
	Args         string        // such as "to 1, tag 7, 20 bytes"
	Begin, End   time.Duration // End is negative until the call returns
	Err          string
	Sends, Recvs []*Transfer
}

// Transfer is a send or a receive. The sends and receives with the same ranks, context and tag belong
// together in their order: the first receive has the first message.
type Transfer struct {
	Context   uint32
	Peer, Tag int // Peer is a world rank; of a receive both are known when it is done
	Bytes     int
	Done      time.Duration // when the program knows that it is complete; negative before
}

// callTrace tells Options.OnCall the calls of a rank.
type callTrace struct {
	onCall func(*Call)
	call   *Call // the current one, or the last one after it has returned
	inCall bool
	args   []string // of the next call, which has not begun
	recvs  map[*p2p.Request]*Transfer
}

// enter records the begin of a call.
func (t *callChecker) enter() {
	if t.trace == nil || t.trace.inCall {
		return
	}
	now := t.k.env.Proc.Now()
	t.trace.call = &Call{Place: t.place(), Args: strings.Join(t.trace.args, "; "), Begin: now, End: -1}
	t.trace.inCall, t.trace.args = true, nil
	t.trace.onCall(t.trace.call)
}

// exit records that the call returns.
func (c *callTrace) exit(now time.Duration) {
	if c != nil {
		c.call.End, c.inCall = now, false
	}
}

// traceError records the error of a call that has just returned, or was refused before it began.
func (t *callChecker) traceError(err error) {
	if t.trace == nil || t.trace.inCall {
		return
	}
	now, place := t.k.env.Proc.Now(), t.place()
	if c := t.trace.call; c == nil || c.Place != place || c.End != now {
		t.enter()
		t.trace.exit(now)
	}
	t.trace.call.Err = err.Error()
}

// note adds arguments to the current call, or to the next one.
func (c *callTrace) note(format string, args ...any) {
	switch {
	case c == nil:
	case c.inCall && c.call.Args != "":
		c.call.Args += "; " + fmt.Sprintf(format, args...)
	case c.inCall:
		c.call.Args = fmt.Sprintf(format, args...)
	default:
		c.args = append(c.args, fmt.Sprintf(format, args...))
	}
}

// started records a send or a receive of the current call.
func (c *callTrace) started(comm *Comm, p *p2p.Request, isRecv bool) {
	if c == nil {
		return
	}
	x := &Transfer{Context: p.Context, Peer: p.Peer, Tag: int(p.Tag), Bytes: len(p.Buf), Done: -1}
	direction, peer := "to", "any"
	if p.Peer >= 0 {
		peer = fmt.Sprint(comm.rankOf(p.Peer))
	}
	if isRecv {
		direction = "from"
		c.call.Recvs, c.recvs[p] = append(c.call.Recvs, x), x
	} else {
		c.call.Sends = append(c.call.Sends, x)
	}
	c.note("%s %s, %s, %s%s", direction, peer, tagText(x.Tag), bytesText(x.Bytes), commText(comm))
}

// completed records the completion of a receive.
func (c *callTrace) completed(p *p2p.Request, now time.Duration) {
	if c == nil || c.recvs[p] == nil {
		return
	}
	x := c.recvs[p]
	delete(c.recvs, p)
	if r := resultOf(p); !r.Cancelled && !r.Failed {
		x.Peer, x.Tag, x.Bytes, x.Done = r.Source, r.Tag, r.Size, now
	}
}

// received records that the current call receives the message of an earlier Mprobe.
func (c *callTrace) received(m *Message, now time.Duration) {
	if c != nil && m.matched != nil {
		from, tag, size := m.matched.Status()
		c.call.Recvs = append(c.call.Recvs, &Transfer{Context: m.c.context, Peer: from, Tag: int(tag), Bytes: size, Done: now})
		c.note("from %d, %s, %s%s", m.c.rankOf(from), tagText(int(tag)), bytesText(size), commText(m.c))
	}
}

// collective records the arguments of a collective.
func (c *callTrace) collective(comm *Comm, call *misuse.Call) {
	if c == nil {
		return
	}
	var text []string
	if call.Root >= 0 {
		text = append(text, fmt.Sprintf("root %d", call.Root))
	}
	if call.Op != "" {
		text = append(text, call.Op+" of "+call.Type)
	}
	if call.Bytes > 0 {
		text = append(text, bytesText(call.Bytes))
	}
	if len(text) > 0 || commText(comm) != "" {
		c.note("%s", strings.TrimPrefix(strings.Join(text, ", ")+commText(comm), ", "))
	}
}

// accessed records the arguments of an operation on a window.
func (c *callTrace) accessed(a *window.Access) {
	c.note("rank %d, offset %d, %s", a.Rank, a.Offset, bytesText(max(len(a.Origin), len(a.Result))))
}

func tagText(tag int) string {
	if tag < 0 {
		return "any tag"
	}
	return fmt.Sprintf("tag %d", tag)
}

func bytesText(n int) string {
	if n == 1 {
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", n)
}

// commText names a communicator other than that of all ranks.
func commText(c *Comm) string {
	if c == c.rank.world {
		return ""
	}
	return ", " + c.name
}
