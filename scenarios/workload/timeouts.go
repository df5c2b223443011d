package workload

import (
	"time"
)

// ackTimeoutOf returns the time of a code of the 5-bit ack timeout field: 4.096 µs ·
// 2^code. Code 0 is infinite.
func ackTimeoutOf(code uint8) time.Duration { return 4096 * time.Nanosecond << code }

// ackTimeoutCode returns the smallest code of at least d.
func ackTimeoutCode(d time.Duration) uint8 {
	for code := uint8(1); code < 31; code++ {
		if ackTimeoutOf(code) >= d {
			return code
		}
	}
	return 31
}

// rnrTimes are the times of the RNR NAK timer codes 1 to 31 and 0, in units of 10 µs.
var rnrTimes = [...]time.Duration{
	1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256,
	384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152, 65536,
}

const maxRNRTime = 655360 * time.Microsecond

// rnrCode returns the code of the shortest time of at least d.
func rnrCode(d time.Duration) uint8 {
	for code := uint8(1); code < 32; code++ {
		if rnrTimeOf(code) >= d {
			return code
		}
	}
	return 0
}

// rnrTimeOf returns the time of a code.
func rnrTimeOf(code uint8) time.Duration { return rnrTimes[(code+31)%32] * 10 * time.Microsecond }

// Defaults. In virtual time a packet that is not acknowledged within a millisecond is lost;
// on a busy machine it may be late.
const (
	simTimeout  = time.Millisecond
	realTimeout = 60 * time.Millisecond
	rnrTimer    = 60 * time.Microsecond
)

// timing returns the codes of the connection attributes.
func (c *Config) timing(concurrent bool) (timeout, rnr uint8) {
	d := c.Timeout
	switch {
	case d != 0:
	case concurrent:
		d = realTimeout
	default:
		d = simTimeout
	}
	wait := c.RNRTimer
	if wait == 0 {
		wait = rnrTimer
	}
	return ackTimeoutCode(d), rnrCode(wait)
}
