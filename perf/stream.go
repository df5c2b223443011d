package perf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Load are the options of benchmarks over verbs. Zero values mean the defaults of the program.
type Load struct {
	// Iterations is the number of messages of each queue pair, and Warmup of those before them that
	// are not measured.
	Iterations int `json:"iterations,omitempty"`
	Warmup     int `json:"warmup,omitempty"`
	// QPs is the number of queue pairs; 0 means 1. Depth is the number of messages in flight on each.
	QPs   int `json:"qps,omitempty"`
	Depth int `json:"depth,omitempty"`
	// PostList is the largest number of messages that are posted in one call.
	PostList int `json:"post_list,omitempty"`
	// Moderation is the number of messages for each signaled one.
	Moderation int `json:"cq_mod,omitempty"`
	// Inline is the length up to which messages have their data in the work request.
	Inline int `json:"inline,omitempty"`
	// Buffer is the size of the memory whose parts the messages use in turn.
	Buffer int `json:"buffer,omitempty"`
	// Events makes programs sleep until a completion event, instead of polling.
	Events bool `json:"events,omitempty"`
	// BothWays lets the server send at the same time. The result is the sum of both directions.
	BothWays bool `json:"both_ways,omitempty"`
}

// Stream transfers messages one way: from the client by WRITE, SEND or atomics, to the
// client by READ.
type Stream struct {
	Op       verbs.WROpcode
	Bytes    int           // of a message
	Duration time.Duration // unless there are Iterations; 0 means 100 ms
	Load
}

// Transfer is the result of a stream.
type Transfer struct {
	// Messages is how many messages arrived, and Took in what time.
	Messages float64       `json:"messages"`
	Took     time.Duration `json:"took_ns"`
	// PeakPerS is the highest rate of messages in a part of the run; 0 without Iterations.
	PeakPerS float64 `json:"peak_per_s,omitempty"`
}

// PerS is the number of messages per second.
func (t *Transfer) PerS() float64 { return t.Messages / t.Took.Seconds() }

// add adds the transfer in the other direction, which ran at the same time: messages and rates add
// up, and t.Took becomes the time that gives the sum of the rates.
func (t *Transfer) add(other *Transfer) {
	rate := t.PerS() + other.PerS()
	t.Messages += other.Messages
	t.Took = time.Duration(t.Messages / rate * float64(time.Second))
	t.PeakPerS += other.PeakPerS
}

const (
	// streamMemory is the size of the buffer whose slots the messages use in turn: larger
	// than L1, smaller than the last-level cache.
	streamMemory = 1 << 20
	// streamInFlight is the number of bytes in flight, within the limits of the depth.
	streamInFlight                 = 4 << 20
	streamMinDepth, streamMaxDepth = 4, 64
	streamBurst                    = 16
)

// check returns an error if the service cannot carry the messages.
func (st *Stream) check(s Service) error {
	atomic := st.Op == verbs.OpAtomicFetchAdd || st.Op == verbs.OpAtomicCmpAndSwp
	switch {
	case st.Bytes < 1, atomic && st.Bytes != wordBytes:
		return fmt.Errorf("messages of %d bytes: atomics have 8, others at least one", st.Bytes)
	case st.Op == verbs.OpRDMAWrite && s == ServiceUC:
		return errors.New("over uc nothing tells that a WRITE has arrived: send messages, or take the transport rc")
	case st.BothWays && st.Op == verbs.OpSend && s.needsCredits():
		return fmt.Errorf("over %v, sends go one way, because credits come the other way", s)
	case st.Moderation > st.Depth && st.Depth > 0:
		return fmt.Errorf("every %d-th message is signaled, but only %d are in flight: increase the depth, or signal more", st.Moderation, st.Depth)
	}
	return s.checkOp(st.Op)
}

// Run runs one side of the stream. The client returns the result.
func (st Stream) Run(ctx context.Context, s *Side) (*Transfer, error) {
	if err := st.check(s.Service); err != nil {
		return nil, wrap(err, "stream of %v", st.Op)
	}
	t, err := st.traffic(s).run(ctx, s)
	return t, wrap(err, "stream of %v, %d bytes, %d queue pairs, %v", st.Op, st.Bytes, max(1, st.QPs), s.Role)
}

// traffic returns the stream with defaults for options that are not set.
func (st *Stream) traffic(s *Side) oneWayTraffic {
	depth := min(max(streamInFlight/st.Bytes, streamMinDepth), streamMaxDepth)
	if isOneSided(st.Op) {
		depth = min(depth, maxReads)
	}
	depth = cmp.Or(st.Depth, depth)
	buffer := max(cmp.Or(st.Buffer, streamMemory), st.Bytes)
	w := oneWayTraffic{
		sendLoad: sendLoad{
			op: st.Op, bytes: st.Bytes, depth: depth, burst: min(depth, cmp.Or(st.PostList, streamBurst)), minBurst: 1,
			signalEvery: max(1, st.Moderation), slots: max(1, buffer/st.Bytes), inline: st.Inline, events: st.Events,
		},
		memory: buffer, qps: max(1, st.QPs), bothWays: st.BothWays,
		warmup: extent{messages: unlimited, minMessages: 8}, measured: extent{messages: unlimited, minMessages: 1, duration: cmp.Or(st.Duration, 100*time.Millisecond)},
	}
	if st.Iterations > 0 {
		w.warmup, w.measured = extent{messages: cmp.Or(st.Warmup, min(st.Iterations, 2*depth))}, extent{messages: st.Iterations}
	}
	if s.Service.needsCredits() && !isOneSided(st.Op) && st.PostList == 0 {
		// Over iWARP and lossy services, messages complete during the post, without an acknowledgement;
		// without a minimum burst (a quarter of the queue) each would be sent alone.
		w.minBurst = min(w.burst, max(1, depth/4))
	}
	if st.Op == verbs.OpSend {
		w.window = 2 * depth // receives that the server posts
	}
	return w
}

// Rate measures how many small messages are sent per second over one or more queue pairs. A quarter
// of the queue is posted at a time, with a signaled last message, from the same buffers.
type Rate struct {
	Bytes    int           // of a message; 0 means 64
	Depth    int           // messages in flight per queue pair; 0 means 64
	QPs      int           // 0 means 1
	Duration time.Duration // 0 means 100 ms
}

// Run runs one side. The client returns the result.
func (r Rate) Run(ctx context.Context, s *Side) (*Transfer, error) {
	bytes, depth := cmp.Or(r.Bytes, 64), cmp.Or(r.Depth, 64)
	burst := max(1, depth/4)
	w := (&Stream{
		Op: verbs.OpSend, Bytes: bytes, Duration: r.Duration,
		Load: Load{QPs: r.QPs, Depth: depth, PostList: burst, Moderation: burst, Buffer: burst * bytes},
	}).traffic(s)
	w.memory, w.minBurst, w.warmup.duration = max(w.memory, streamMemory), burst, w.measured.duration/10
	t, err := w.run(ctx, s)
	return t, wrap(err, "rate of %d bytes, %d queue pairs, %v", bytes, max(1, r.QPs), s.Role)
}

// oneWayTraffic configures a program that sends one way. memory is the bytes of its buffer.
type oneWayTraffic struct {
	sendLoad
	qps, memory      int
	warmup, measured extent
	bothWays         bool // the server sends, too
}

// run connects and runs one side. The client returns the result.
func (w oneWayTraffic) run(ctx context.Context, s *Side) (t *Transfer, err error) {
	cfg := connConfig{qps: w.qps, sends: w.depth, recvs: max(1, w.window), memory: w.memory, message: w.bytes, inline: w.inline, op: w.op}
	if s.Service.needsCredits() && w.window > 0 { // the server sends credits to the client
		if s.Role == Server {
			cfg.sends = maxCredits
		} else {
			cfg.recvs = maxCredits
		}
	}
	c, err := s.connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if s.Role == Server && !w.bothWays {
		err = w.runServer(ctx, c)
	} else {
		t, err = w.runClient(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	return t, s.barrier(ctx) // close only when both are done
}

// runClient sends once the server has posted its receives. If both sides send, the result is the
// sum of both.
func (w oneWayTraffic) runClient(ctx context.Context, c *conn) (*Transfer, error) {
	out, err := newSender(c, w.sendLoad)
	if err != nil {
		return nil, err
	}
	out.peak.enabled = w.measured.messages != unlimited && !c.side.Service.needsCredits() // a completion tells of arrival
	if w.bothWays && w.window > 0 {
		out.inbound = newReceiver(c, w.bytes, w.window)
		out.inbound.events = w.events
		if err := out.inbound.postAll(); err != nil {
			return nil, err
		}
	}
	if err := c.side.barrier(ctx); err != nil { // receives are posted
		return nil, err
	}
	t, err := out.measure(ctx, w.warmup, w.measured)
	if err != nil || !w.bothWays {
		return t, err
	}
	other, err := swap(ctx, c.side, *t)
	t.add(&other)
	return t, err
}

// runServer receives until all messages of the client have arrived, and sends their number
// back. Without receives (WRITE, READ and atomics) it sends back the number that the client reports.
func (w oneWayTraffic) runServer(ctx context.Context, c *conn) error {
	if w.window == 0 {
		if err := c.side.barrier(ctx); err != nil {
			return err
		}
		sent, err := swap(ctx, c.side, uint64(0)) // the client ignores the 0
		if err != nil {
			return err
		}
		_, err = swap(ctx, c.side, sent)
		return err
	}
	in := newReceiver(c, w.bytes, w.window)
	in.events = w.events
	if err := in.postAll(); err != nil {
		return err
	}
	if err := c.side.barrier(ctx); err != nil {
		return err
	}
	const sent = 0 // which the client ignores
	got, err := in.drain(ctx, sent, 0)
	if err != nil {
		return err
	}
	_, err = swap(ctx, c.side, got)
	return err
}

// wrap adds context to an error that is not nil.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}
