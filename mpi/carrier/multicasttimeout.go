package carrier

import "time"

// minMulticastTimeout is the shortest time after which an expected segment is requested: a round trip, and
// the time that another process may keep the sender's processor.
const minMulticastTimeout = 100 * time.Microsecond

// arrivalTime estimates how long an operation waits for its next segment, as a sender estimates round trips
// (RFC 6298 §2). The zero value has no sample.
type arrivalTime struct {
	smoothed, variation time.Duration
	sampled             bool
}

// Sample adds the time that an operation has waited. A much longer one than before counts less: a rank that was late
// once must not delay the requests of later operations.
func (a *arrivalTime) Sample(waited time.Duration) {
	const maxGrowth = 4
	waited = min(waited, maxGrowth*a.upperBound())
	if !a.sampled {
		*a = arrivalTime{waited, waited / 2, true}
		return
	}
	difference := waited - a.smoothed
	a.variation += (max(difference, -difference) - a.variation) / 4
	a.smoothed += difference / 8
}

// upperBound is a time that few segments exceed.
func (a *arrivalTime) upperBound() time.Duration {
	return max(a.smoothed+4*a.variation, minMulticastTimeout)
}

// Timeout returns the time that a segment may take, up to longest.
func (a *arrivalTime) Timeout(longest time.Duration) time.Duration {
	if !a.sampled {
		return longest
	}
	return min(a.upperBound(), longest)
}
