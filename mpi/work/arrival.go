package work

import "time"

// arrivalDelay returns for how long this rank computes before the operation of a round: a random time of
// up to longest, or if Collective.Late is given, longest at so many ranks.
func (j *job) arrivalDelay(longest time.Duration, round int) time.Duration {
	if longest == 0 {
		return 0
	}
	random := func(rank int) uint64 { return key(j.p.Seed, uint64(rank), uint64(round)) }
	mine := random(j.Rank())
	if j.p.Collective.Late == 0 {
		return time.Duration((uniform(mine) + 1) / 2 * float64(longest))
	}
	before := 0 // ranks with a smaller number
	for rank := range j.Size() {
		if random(rank) < mine {
			before++
		}
	}
	if before*100 < j.p.Collective.Late*j.Size() {
		return longest
	}
	return 0
}

// messageTime returns the time of a message of n bytes between the first and the last rank: half of the
// mean of round trips.
func (j *job) messageTime(n int) time.Duration {
	const warmup, trips = 3, 10
	peer, buf := j.Size()-1-j.Rank(), make([]byte, n)
	j.Barrier()
	began := j.Wtime()
	for i := range warmup + trips {
		if i == warmup {
			began = j.Wtime()
		}
		switch j.Rank() {
		case 0:
			fill(buf, j.messageKey(0, peer, i))
			j.Send(buf, peer, 1)
			j.Recv(buf, peer, 1)
			j.checkContents(buf, j.messageKey(0, peer, i), "answer %d", i)
		case j.Size() - 1:
			j.Recv(buf, peer, 1)
			j.Send(buf, peer, 1)
		}
	}
	return time.Duration(j.bcastFromRoot((j.Wtime()-began).Seconds()/(2*trips)) * 1e9)
}
