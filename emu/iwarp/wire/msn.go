package wire

// MSN is the 32-bit message sequence number of a queue, from 1 on. It wraps.
type MSN uint32

// FirstMSN is the MSN of the first message of each queue.
const FirstMSN MSN = 1

// Next returns the MSN after m; after the largest comes 0.
func (m MSN) Next() MSN { return m + 1 }
