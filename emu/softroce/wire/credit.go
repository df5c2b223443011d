package wire

import (
	"math"
	"slices"
)

// CreditUnlimited is the credit code without a limit. Responders with an SRQ always send it.
const CreditUnlimited uint8 = 31

// creditCounts is the number of receives of each credit code but CreditUnlimited.
var creditCounts = [...]uint32{
	0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288,
	16384, 24576, 32768,
}

// CreditCount returns the number of receives of a credit code, of which only the low five
// bits are used. For CreditUnlimited it returns the largest number, and false.
func CreditCount(code uint8) (uint32, bool) {
	if code &= syndromeValueMask; code < CreditUnlimited {
		return creditCounts[code], true
	}
	return math.MaxUint32, false
}

// CreditCode returns the largest code whose count is at most n, so that a responder never
// grants more credits than it has receives. It never returns CreditUnlimited.
func CreditCode(n uint32) uint8 {
	code, exact := slices.BinarySearch(creditCounts[:], n)
	if !exact {
		code--
	}
	return uint8(code)
}
