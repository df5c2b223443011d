package wire

import "time"

// CMTimeout returns the time that a 5-bit timeout code stands for:
// 4.096 µs times two to the power of the code.
func CMTimeout(code uint8) time.Duration { return 4096 << (code & 31) }
