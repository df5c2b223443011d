package work

import (
	"fmt"
	"time"
)

// crossing is a ping-pong in which a receive is posted when its message is sent, as in Rashti 2010
// §4.4.3: every announcement of a receive (RTR) crosses that of a message (RTS), and is of no use.
func crossing(j *job) {
	sizes := j.messageSizes(map[Class][]int{
		ClassT: {8, 64 << 10},
		ClassS: {8, 1 << 10, 64 << 10, 256 << 10},
		ClassW: {8, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20},
		ClassA: {8, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20},
	})
	trips := j.setIterations(map[Class]int{ClassT: 4, ClassS: 100, ClassW: 1000, ClassA: 10000}[j.p.Class])
	for _, n := range sizes {
		crossingSize(j, n, trips)
	}
}

// crossingSize measures messages of n bytes between ranks 0 and 1, each way in turn, from the call of
// the receive to its end.
func crossingSize(j *job, n, trips int) {
	me, buf := j.Rank(), make([]byte, n)
	j.start()
	var receiving, oneWay time.Duration
	if me < 2 {
		oneWay = emptyLatency(j)
	}
	for trip := range 2 * trips {
		if me > 1 {
			break
		}
		sender := trip % 2
		contents := j.messageKey(sender, 1-sender, trip)
		if me == sender {
			fill(buf, contents)
		}
		startTogether(j, oneWay)
		if me == sender {
			j.Send(buf, 1-me, 1)
			continue
		}
		began := j.Wtime()
		s := j.Recv(buf, 1-me, 1)
		receiving += j.Wtime() - began
		j.checkReceived(buf, s, 1-me, 1, contents)
	}
	j.stop()
	latency := j.sumAll(receiving.Seconds() / float64(2*trips))
	j.addFigure(fmt.Sprintf("latency %d B", n), latency*1e6, "us")
}

// emptyLatency returns the latency of an empty message between ranks 0 and 1, without the first.
func emptyLatency(j *job) time.Duration {
	const trips = 8
	roundTrip(j, nil, nil)
	began := j.Wtime()
	for range trips {
		roundTrip(j, nil, nil)
	}
	return (j.Wtime() - began) / (2 * trips)
}

// startTogether returns on ranks 0 and 1 at about the same time: rank 0 tells rank 1 to start, and
// computes as long as the message takes.
func startTogether(j *job, oneWay time.Duration) {
	if j.Rank() == 1 {
		j.Recv(nil, 0, tagReady)
		return
	}
	j.Send(nil, 1, tagReady)
	j.Compute(oneWay)
}
