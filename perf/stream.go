package perf

import (
	"context"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Stream moves messages one way as fast as they go: from the client by WRITE
// and SEND, to the client by READ.
type Stream struct {
	Op       verbs.WROpcode // OpRDMAWrite, OpRDMARead or OpSend
	Bytes    int            // of a message
	Duration time.Duration  // 0 means 100 ms
}

const (
	// streamMemory is how much memory messages are taken from and put into, in
	// turn: more than the caches nearest to a core hold, less than the others.
	streamMemory = 1 << 20
	// streamFlight is how many bytes are on their way, if they are messages
	// enough but not too many.
	streamFlight              = 4 << 20
	streamLeast, streamLots   = 4, 64
	streamWarmup, streamBurst = 8, 16
)

// Run plays a side. The client gets the goodput in Gb/s.
func (st Stream) Run(ctx context.Context, s *Side) (gbps float64, err error) {
	st.Duration = orElse(st.Duration, 100*time.Millisecond)
	if st.Bytes < 1 {
		return 0, fmt.Errorf("stream: message of %d bytes", st.Bytes)
	}
	depth := min(max(streamFlight/st.Bytes, streamLeast), streamLots)
	if st.Op == verbs.OpRDMARead {
		depth = min(depth, maxReads)
	}
	sh := shape{qps: 1, sends: depth, recvs: 1, memory: max(streamMemory, st.Bytes)}
	if st.Op == verbs.OpSend {
		sh.recvs = 2 * depth
	}
	c, err := s.connect(ctx, sh)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	switch {
	case s.Role == Client:
		gbps, err = st.drive(ctx, c, depth)
	case st.Op == verbs.OpSend:
		err = st.receive(ctx, c, sh.recvs)
	default:
		err = s.meet(ctx) // what WRITE and READ need of this side its device does
	}
	if err != nil {
		return 0, fmt.Errorf("stream of %v, %d bytes, %v: %w", st.Op, st.Bytes, s.Role, err)
	}
	return gbps, s.meet(ctx)
}

// drive posts messages and counts those that complete until time is up.
func (st Stream) drive(ctx context.Context, c *conn, depth int) (gbps float64, err error) {
	if st.Op == verbs.OpSend {
		if err := c.side.meet(ctx); err != nil { // receives are posted
			return 0, err
		}
	}
	wrs, slots := make([]verbs.SendWR, min(depth, streamBurst)), max(1, streamMemory/st.Bytes)
	for i := range wrs {
		wrs[i] = verbs.SendWR{Opcode: st.Op, Flags: verbs.SendSignaled, SGL: make([]verbs.SGE, 1), Remote: c.remote}
	}
	wcs := make([]verbs.WC, depth)
	posted, done, counted := 0, 0, 0
	start := time.Now()
	var late overdue
	for over := false; !over || done < posted; {
		for free := depth - (posted - done); !over && free > 0; {
			burst := wrs[:min(free, len(wrs))]
			for i := range burst {
				at := (posted + i) % slots * st.Bytes
				burst[i].SGL[0] = verbs.SGEOf(c.mr, at, st.Bytes)
				burst[i].Remote.Addr = c.remote.Addr + uint64(at)
			}
			n, err := c.qps[0].PostSend(burst)
			if err != nil {
				return 0, err
			}
			posted, free = posted+n, free-n
		}
		n, err := c.sends.Poll(wcs)
		if err == nil {
			err = succeeded(wcs[:n])
		}
		if err != nil {
			return 0, err
		}
		if n == 0 {
			if late.yet() {
				return 0, fmt.Errorf("%d of %d messages did not complete within %v", posted-done, posted, patience)
			}
			continue
		}
		late.reset()
		if done += n; counted == 0 && done >= streamWarmup {
			start, counted = time.Now(), done
		}
		over = over || counted > 0 && time.Since(start) >= st.Duration || ctx.Err() != nil
	}
	took := time.Since(start)
	if _, err := swap(ctx, c.side, tally{Messages: uint64(done)}); err != nil {
		return 0, err
	}
	return float64(done-counted) * float64(st.Bytes) * 8 / float64(took.Nanoseconds()), nil
}

// receive takes messages until as many have come as the client has sent.
func (st Stream) receive(ctx context.Context, c *conn, recvs int) error {
	in := newInbox(c, st.Bytes, recvs)
	if err := in.fill(); err != nil {
		return err
	}
	if err := c.side.meet(ctx); err != nil {
		return err
	}
	return in.drain(ctx)
}
