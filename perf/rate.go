package perf

import (
	"context"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Rate sends small messages, each of its own, over one or more queue pairs.
type Rate struct {
	Bytes    int           // of a message; 0 means 64
	Depth    int           // messages on their way, a queue pair; 0 means 64
	QPs      int           // 0 means 1
	Duration time.Duration // 0 means 100 ms
}

// Run plays a side. The client gets messages a second.
func (r Rate) Run(ctx context.Context, s *Side) (perSecond float64, err error) {
	r.Bytes, r.Depth, r.QPs = orElse(r.Bytes, 64), orElse(r.Depth, 64), orElse(r.QPs, 1)
	r.Duration = orElse(r.Duration, 100*time.Millisecond)
	// A quarter of a queue is posted at a time, and its last message tells when
	// all of it is done.
	burst := max(1, r.Depth/4)
	messages, took, err := oneWay{
		load: load{op: verbs.OpSend, bytes: r.Bytes, depth: r.Depth, burst: burst, least: burst, every: burst, slots: burst, window: 2 * r.Depth},
		qps:  r.QPs, memory: max(streamMemory, burst*r.Bytes), duration: r.Duration, warmup: r.Duration / 10,
	}.run(ctx, s)
	if err != nil || s.Role == Server {
		return 0, wrap(err, "rate of %d bytes, %d queue pairs, %v", r.Bytes, r.QPs, s.Role)
	}
	return messages / took.Seconds(), nil
}
