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

// rnrTimers are the times of the RNR NAK timer codes, shortest first. Code 0 is the
// longest.
var rnrTimers = []struct {
	code uint8
	wait time.Duration
}{
	{1, 10 * time.Microsecond},
	{2, 20 * time.Microsecond},
	{3, 30 * time.Microsecond},
	{4, 40 * time.Microsecond},
	{5, 60 * time.Microsecond},
	{6, 80 * time.Microsecond},
	{7, 120 * time.Microsecond},
	{8, 160 * time.Microsecond},
	{9, 240 * time.Microsecond},
	{10, 320 * time.Microsecond},
	{11, 480 * time.Microsecond},
	{12, 640 * time.Microsecond},
	{13, 960 * time.Microsecond},
	{14, 1280 * time.Microsecond},
	{15, 1920 * time.Microsecond},
	{16, 2560 * time.Microsecond},
	{17, 3840 * time.Microsecond},
	{18, 5120 * time.Microsecond},
	{19, 7680 * time.Microsecond},
	{20, 10240 * time.Microsecond},
	{21, 15360 * time.Microsecond},
	{22, 20480 * time.Microsecond},
	{23, 30720 * time.Microsecond},
	{24, 40960 * time.Microsecond},
	{25, 61440 * time.Microsecond},
	{26, 81920 * time.Microsecond},
	{27, 122880 * time.Microsecond},
	{28, 163840 * time.Microsecond},
	{29, 245760 * time.Microsecond},
	{30, 327680 * time.Microsecond},
	{31, 491520 * time.Microsecond},
	{0, 655360 * time.Microsecond},
}

// rnrCode returns the code of the shortest time of at least d.
func rnrCode(d time.Duration) uint8 {
	for _, t := range rnrTimers {
		if t.wait >= d {
			return t.code
		}
	}
	return 0
}

// rnrTimeOf returns the time of a code.
func rnrTimeOf(code uint8) time.Duration {
	for _, t := range rnrTimers {
		if t.code == code {
			return t.wait
		}
	}
	return 0
}

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
