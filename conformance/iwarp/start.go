package iwarp

import (
	"errors"
	"fmt"
	"io"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// startup is a start-up frame.
type startup = iwarp.StartupFrame

// start is a stream on which MPA starts up, step by step, and the device's program
// that connects, or accepts, beside it.
type start struct {
	*conn
	setup setup
	// sent and got are the start-up frames of the peer and of the device.
	sent, got startup
	// asked is what the device's program was shown of the Request, once it was.
	asked verbs.ConnParam

	listener verbs.Listener       // of a device that listens
	door     conformance.Listener // of a peer that does
	result   verbs.Conn
}

// onListening makes a case of a body that starts up a connection with a device that
// listens: nothing is said yet.
func onListening(s setup, body func(*start)) func(*conformance.Bench) error {
	return onHost(func(h *host) { body(h.listening(s)) })
}

// onConnecting makes a case of a body that starts up a connection with a device that
// connects: its Request may be on its way.
func onConnecting(s setup, body func(*start)) func(*conformance.Bench) error {
	return onHost(func(h *host) { body(h.connecting(s)) })
}

// start begins a connection, in the one role or the other.
func (h *host) start(s setup) *start {
	if s.active {
		return h.connecting(s)
	}
	return h.listening(s)
}

// listening has the device listen, its program wait for a request, and the peer dial.
func (h *host) listening(s setup) *start {
	st := &start{conn: h.queuePair(&s), setup: s, listener: h.serve()}
	h.accepting = append(h.accepting, st)
	st.task = h.Go("accept", func() error {
		r, err := st.listener.GetRequest(programPatience)
		if err != nil {
			return err
		}
		st.asked = r.Param()
		if s.answer != nil {
			st.result, err = s.answer(r, st.qp)
		} else {
			st.result, err = r.Accept(st.qp, s.connParam(), programPatience)
		}
		return err
	})
	st.tcp = h.dial(st.listener)
	return st
}

// connecting has the device's program connect to the peer, which takes its stream and
// no other.
func (h *host) connecting(s setup) *start {
	st := h.connectingTo(s)
	if err := st.door.Close(); err != nil {
		rig.Abort(fmt.Errorf("close the peer's listener: %w", err))
	}
	return st
}

// connectingTo is connecting to a peer that goes on listening: see again.
func (h *host) connectingTo(s setup) *start {
	s.active = true
	st := &start{conn: h.queuePair(&s), setup: s}
	var err error
	if st.door, err = h.Streams.Listen(0); err != nil {
		rig.Abort(fmt.Errorf("listen: %w", err))
	}
	cm := h.CM()
	st.task = h.Go("connect", func() error {
		var err error
		st.result, err = cm.Connect(st.qp, st.door.Addr(), s.connParam(), programPatience)
		return err
	})
	st.tcp, err = st.door.Accept(h.ResponseTimeout())
	h.stream("a device that connects", err)
	return st
}

// again hangs up, and reports whether the device tries once more, on a stream of its
// own.
func (st *start) again() bool {
	st.reset()
	tcp, err := st.door.Accept(st.ResponseTimeout())
	switch {
	case errors.Is(err, verbs.ErrTimeout):
		return false
	case err != nil:
		rig.Abort(fmt.Errorf("accept: %w", err))
	}
	st.tcp, st.early, st.end, st.in = tcp, nil, nil, iwarp.Deframer{}
	return true
}

// say sends the peer's start-up frame.
func (st *start) say(f startup) {
	st.sent = f
	st.write(f.Append(nil))
}

// hear returns the device's start-up frame; anything else ends the case.
func (st *start) hear() startup {
	want := "a start-up frame"
	until := st.Now() + st.ResponseTimeout()
	for {
		f, rest, ok := iwarp.ParseStartupFrame(st.early)
		if ok {
			st.got, st.early = f, rest
			return f
		}
		b, err := st.tcp.Read(max(0, until-st.Now()))
		if err != nil {
			st.Fail(want, "%s behind %d octets", ending(err), len(st.early))
		}
		st.early = append(st.early, b...)
	}
}

// hears ends the case unless the device's start-up frame is as wanted.
func (st *start) hears(want startup) startup {
	got := st.hear()
	if d := want.Diff(got); d != nil {
		st.Fail(fmt.Sprintf("%v with %s", want, d.Want()), "%v with %s", got, d.Got())
	}
	return got
}

// full goes over to full operation, by what the two frames have agreed on.
func (st *start) full() *conn {
	c := st.conn
	c.device, c.peer = st.got, st.sent
	crc := iwarp.Val(st.got.C) || c.peerWantsCRC()
	c.out = iwarp.Framer{Markers: iwarp.Val(st.got.M), CRC: crc}
	c.in = iwarp.Deframer{Markers: iwarp.Val(st.sent.M), CRC: crc}
	c.in.Feed(c.early)
	c.early = nil
	return c
}

// peerWantsCRC is the C flag of the peer's frame, as it was sent.
func (c *conn) peerWantsCRC() bool { return iwarp.Val(c.peer.Strict().C) }

// connected ends the case unless the device's program gets its connection.
func (st *start) connected() *conn {
	st.Must("a connection", st.ended())
	st.cm = st.result
	return st.conn
}

// ended waits for what comes of the device's program.
func (st *start) ended() error {
	err := st.task.Wait(2 * programPatience)
	st.Note("the device's program: %s", outcome(err))
	return err
}

func outcome(err error) string {
	if err != nil {
		return err.Error()
	}
	return "connected"
}

// fails ends the case unless the device's program gets no connection. It returns why.
func (st *start) fails() error {
	err := st.ended()
	st.Check(err != nil, "no connection", "the device's program has one")
	return err
}

// ending tells how a stream has ended, or that it has not.
func ending(err error) string {
	switch {
	case errors.Is(err, io.EOF):
		return "the end of the stream"
	case errors.Is(err, conformance.ErrReset):
		return "a reset"
	case errors.Is(err, verbs.ErrTimeout):
		return "nothing"
	default:
		return err.Error()
	}
}

// quiet is how long silence lasts where no timer runs.
const quiet = rig.SilencePeriod
