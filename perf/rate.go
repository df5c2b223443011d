package perf

import (
	"context"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Rate sends small messages over one or more queue pairs.
type Rate struct {
	Bytes    int           // of a message; 0 means 64
	Depth    int           // messages in flight per queue pair; 0 means 64
	QPs      int           // 0 means 1
	Duration time.Duration // 0 means 100 ms
}

// Run runs one side. The client returns messages per second.
func (r Rate) Run(ctx context.Context, s *Side) (perSecond float64, err error) {
	r.Bytes, r.Depth, r.QPs = orElse(r.Bytes, 64), orElse(r.Depth, 64), orElse(r.QPs, 1)
	r.Duration = orElse(r.Duration, 100*time.Millisecond)
	// A quarter of the queue is posted at a time, with a signaled last message.
	burst := max(1, r.Depth/4)
	messages, took, err := oneWayTraffic{
		sendLoad: sendLoad{op: verbs.OpSend, bytes: r.Bytes, depth: r.Depth, burst: burst, minBurst: burst, signalEvery: burst, slots: burst, window: 2 * r.Depth},
		qps:      r.QPs, memory: max(streamMemory, burst*r.Bytes), duration: r.Duration, warmup: r.Duration / 10,
	}.run(ctx, s)
	if err != nil || s.Role == Server {
		return 0, wrap(err, "rate of %d bytes, %d queue pairs, %v", r.Bytes, r.QPs, s.Role)
	}
	return messages / took.Seconds(), nil
}
