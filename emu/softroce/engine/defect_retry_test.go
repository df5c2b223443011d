package engine

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// repetitions counts how often a SEND leaves that is never answered, or answered by
// an RNR NAK each time.
func repetitions(c *talk, rnr bool) {
	n := 0
	c.post(1, verbs.OpSend, 8)
	for c.skip(); len(c.heard) > 0 && n < 50; n++ {
		if rnr {
			c.rnr(0, 1)
		}
		c.now = max(c.now, min(c.h.nic.Deadline(), c.now.Add(time.Second)))
		c.h.nic.Tick(c.now)
		c.skip()
	}
	c.note("sent %d times", n)
	c.done()
}

// retryDefects are about how often and how a request is repeated.
var retryDefects = map[string]defectCase{
	"RetryOffByOne": {
		talk: func(c *talk) {
			repetitions(c, false)
			c.q = c.another(nil)
			repetitions(c, true)
		},
		sound:     "sent 4 times; 1 RETRY_EXC_ERR; sent 4 times; 1 RNR_RETRY_EXC_ERR",
		defective: "sent 5 times; 1 RETRY_EXC_ERR; sent 5 times; 1 RNR_RETRY_EXC_ERR",
	},
	"RNRRetry7IsSeven": {
		setup:     setup{attr: func(a *verbs.QPAttr) { a.RNRRetry = 7 }},
		talk:      func(c *talk) { repetitions(c, true) },
		sound:     "sent 50 times; no completion",
		defective: "sent 8 times; 1 RNR_RETRY_EXC_ERR",
	},
	"RetryCountShared": {
		setup: setup{attr: func(a *verbs.QPAttr) { a.RetryCnt, a.RNRRetry = 3, 2 }},
		talk: func(c *talk) {
			c.post(1, verbs.OpSend, 8)
			c.post(2, verbs.OpSend, 8)
			c.skip()
			c.listen(wire.AckTimeout(14)) // one is gone
			c.log = nil
			c.ack(0)
			for range 2 {
				c.rnr(1, 1)
				c.listen(10 * time.Microsecond)
			}
			c.done()
		},
		sound:     "after 10µs: SEND_ONLY 1 8B ackreq; after 10µs: SEND_ONLY 1 8B ackreq; 1 SUCCESS SEND",
		defective: "after 10µs: SEND_ONLY 1 8B ackreq; silence; 1 SUCCESS SEND; 2 RNR_RETRY_EXC_ERR",
	},
	"TimerRunsInRNR": {
		talk: func(c *talk) {
			c.post(1, verbs.OpSend, 8)
			c.skip()
			c.rnr(0, 0) // 655 ms
			c.listen(100 * time.Millisecond)
		},
		sound:     "silence",
		defective: "after 67.108864ms: SEND_ONLY 0 8B ackreq",
	},
	"NoTransportTimer": {
		talk: func(c *talk) {
			c.post(1, verbs.OpSend, 8)
			c.skip()
			c.listen(100 * time.Millisecond)
		},
		sound:     "after 67.108864ms: SEND_ONLY 0 8B ackreq",
		defective: "silence",
	},
	"TimeoutZeroFires": {
		setup: setup{attr: func(a *verbs.QPAttr) { a.Timeout = 0 }},
		talk: func(c *talk) {
			c.post(1, verbs.OpSend, 8)
			c.skip()
			c.listen(5 * time.Microsecond)
		},
		sound:     "silence",
		defective: "after 4.096µs: SEND_ONLY 0 8B ackreq",
	},
	"RetryRestartsMessage": {
		talk: func(c *talk) {
			c.post(1, verbs.OpSend, 2048+8)
			c.post(2, verbs.OpSend, 4)
			c.skip()
			c.nak(1, wire.NakPSNSequence)
			c.hear()
			c.ack(3)
			c.done()
		},
		sound: "SEND_MIDDLE 1 1024B; SEND_LAST 2 8B ackreq; SEND_ONLY 3 4B ackreq; 1 SUCCESS SEND; 2 SUCCESS SEND",
		defective: "SEND_FIRST 1 1024B; SEND_MIDDLE 2 1024B; SEND_LAST 3 8B ackreq; SEND_ONLY 4 4B ackreq; " +
			"1 SUCCESS SEND",
	},
	"ReadRestartRefused": {
		talk: func(c *talk) {
			c.post(1, verbs.OpRDMARead, 2500)
			c.skip()
			c.send(wire.OpReadResponseFirst, 0, data(1024))
			c.listen(wire.AckTimeout(14))
			c.log = nil
			c.send(wire.OpReadResponseFirst, 1, data(1024))
			c.send(wire.OpReadResponseLast, 2, data(2500-2048))
			c.done()
		},
		sound:     "1 SUCCESS RDMA_READ 2500B",
		defective: "1 BAD_RESP_ERR",
	},
}
