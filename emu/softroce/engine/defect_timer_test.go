package engine

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// timerDefects are about when a NIC sends a request again, and when it gives up.
var timerDefects = map[string]defectCase{
	"RNRNoWait": {
		talk:      func(c *talk) { answerRNR(c, 1, 20*time.Microsecond) },
		sound:     "after 10µs: SEND_ONLY 0 8B ackreq",
		defective: "after 0s: SEND_ONLY 0 8B ackreq",
	},
	"RNRTimerTypo": {
		talk:      func(c *talk) { answerRNR(c, 25, 62*time.Millisecond) },
		sound:     "after 61.44ms: SEND_ONLY 0 8B ackreq",
		defective: "after 61.41ms: SEND_ONLY 0 8B ackreq",
	},
	"JiffyTimers": {
		setup:     setup{attr: func(a *verbs.QPAttr) { a.Timeout, a.RetryCnt = 9, 1 }},
		talk:      func(c *talk) { answerRNR(c, 1, 8*time.Millisecond) },
		sound:     "after 10µs: SEND_ONLY 0 8B ackreq; after 2.107152ms: SEND_ONLY 0 8B ackreq",
		defective: "after 4ms: SEND_ONLY 0 8B ackreq; after 8ms: SEND_ONLY 0 8B ackreq",
	},
	"TimeoutBacksOff": {
		talk: unanswered, sound: resent,
		defective: "after 67.108864ms: SEND_ONLY 0 8B ackreq; after 201.326592ms: SEND_ONLY 0 8B ackreq",
	},
	"AdaptiveTimeout": {
		talk: unanswered, sound: resent,
		defective: "after 4.194304ms: SEND_ONLY 0 8B ackreq; after 12.582912ms: SEND_ONLY 0 8B ackreq; " +
			"after 29.360128ms: SEND_ONLY 0 8B ackreq",
	},
	"RetryCount7Forever": {
		setup: setup{attr: func(a *verbs.QPAttr) { a.Timeout, a.RetryCnt = 12, 7 }},
		talk: func(c *talk) {
			c.post(1, verbs.OpSend, 8)
			c.skip()
			c.listen(1500 * time.Millisecond)
			c.log = append(c.log[:0], c.log[len(c.log)-1]) // the last resend will do
			c.done()
			c.standing()
		},
		sound:     "after 117.440512ms: SEND_ONLY 0 8B ackreq; 1 RETRY_EXC_ERR; ERR",
		defective: "after 1.493172224s: SEND_ONLY 0 8B ackreq; no completion; RTS",
	},
	"RNRExcIsRetryExc": {
		setup: setup{attr: func(a *verbs.QPAttr) { a.RNRRetry = 0 }},
		talk: func(c *talk) {
			c.post(1, verbs.OpSend, 8)
			c.skip()
			c.rnr(0, 1)
			c.done()
		},
		sound:     "1 RNR_RETRY_EXC_ERR",
		defective: "1 RETRY_EXC_ERR",
	},
	"RetryExcHangs": {
		setup: setup{attr: func(a *verbs.QPAttr) { a.RetryCnt = 0 }},
		talk: func(c *talk) {
			c.post(1, verbs.OpSend, 8)
			c.skip()
			c.listen(time.Minute)
			c.done()
		},
		sound:     "silence; 1 RETRY_EXC_ERR",
		defective: "silence; no completion",
	},
}

// unanswered watches a SEND that is not answered for three timeouts.
func unanswered(c *talk) {
	c.post(1, verbs.OpSend, 8)
	c.skip()
	c.listen(3 * wire.AckTimeout(14))
}

const resent = "after 67.108864ms: SEND_ONLY 0 8B ackreq; after 134.217728ms: SEND_ONLY 0 8B ackreq; " +
	"after 201.326592ms: SEND_ONLY 0 8B ackreq"

// answerRNR answers a SEND with an RNR NAK and watches for further attempts.
func answerRNR(c *talk, code uint8, d time.Duration) {
	c.post(1, verbs.OpSend, 8)
	c.skip()
	c.rnr(0, code)
	c.listen(d)
}
