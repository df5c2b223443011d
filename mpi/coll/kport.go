package coll

// The k-port algorithms are those of Qian 2010, chapter 3, which writes to the receive buffers of other ranks.
// Ranks advertise receives before the first send, and in each step wait only for what they have sent.

// directPorts returns the Direct algorithm: in each step a rank sends to as many others as it has ports.
func directPorts(own func(*Call, *Round), blockFor func(c *Call, to int) Slice) phase {
	return direct(own, blockFor, func(c *Call, r *Round, k int) {
		if k%ports(c) == 0 || k == c.Size-1 {
			r.Steps = append(r.Steps, Step{Kind: WaitSent})
		}
	})
}

// advertised returns a phase with advertised receives and sends.
func (p phase) advertised() phase {
	return phase{
		p.rounds,
		func(c *Call, i int, r *Round) {
			at := len(r.Steps)
			p.round(c, i, r)
			added := Round{r.Steps[at:]}
			added.each(Recv, func(s *Step) { s.Kind = RecvAdvertised })
			added.each(Send, func(s *Step) { s.Kind = SendAdvertised })
		},
	}
}

// The standard exchange is recursive doubling with k ports: in round i, the ranks that differ in digit i
// exchange what they have, each with k others.

// exchangeDigits is the exchange for Alltoall, for a power of the radix. Before round i, block n of Out is
// for a rank with the digits of n from digit i on, and from a rank with those before.
var exchangeDigits = phase{
	func(c *Call) int { return 2 * radix(portRadix).rounds(c) },
	func(c *Call, i int, r *Round) {
		q := portRadix(c)
		m := digitMove{Out, 0, q, power(q, i/2)}
		mine := c.Rank / m.weight % q
		for distance := 1; distance < q; distance++ {
			digit := (mine + distance) % q
			peer := c.Rank + (digit-mine)*m.weight
			sent, received := m.message(c, distance, false), m.message(c, distance, true)
			if i%2 == 1 {
				m.copy(c, r, digit, received, false)
				continue
			}
			m.copy(c, r, digit, sent, true)
			r.exchange(peer, received, peer, sent)
		}
	},
}

// exchangeScratch is the size of the messages.
func exchangeScratch(c *Call) int {
	q := portRadix(c)
	return 2 * (q - 1) * messageBlocks(c, q) * c.Bytes
}

// keepAll copies all blocks to Out.
func keepAll(c *Call, r *Round) { r.copy(c.ofAll(Out), c.ofAll(In)) }

// ofAll returns the memory of all blocks, of the same size.
func (c *Call) ofAll(b Buffer) Slice { return Slice{b, 0, allBlocks(c)} }

// exchangeGroups is the exchange for Allgather. If the number of ranks is not a power of the radix, ranks
// are divided into a power of groups of consecutive ranks: the first rank of each group first receives the
// blocks of the others, and at the end sends them all blocks.
var exchangeGroups = phase{
	func(c *Call) int { return groupDigits(c) + 2 },
	func(c *Call, i int, r *Round) {
		q, all := portRadix(c), groupDigits(c)
		groups := power(q, all)
		first := func(group int) int { return (group*c.Size + groups - 1) / groups }
		group := c.Rank * groups / c.Size
		switch leader := first(group); {
		case c.Rank != leader && i == 0:
			r.send(leader, c.block(Out, c.Rank))
		case c.Rank != leader && i == all+1:
			r.recv(leader, c.ofAll(Out))
		case c.Rank != leader:
		case i == 0:
			for rank := leader + 1; rank < first(group+1); rank++ {
				r.recv(rank, c.block(Out, rank))
			}
		case i == all+1:
			for rank := leader + 1; rank < first(group+1); rank++ {
				r.send(rank, c.ofAll(Out))
			}
		default:
			weight := power(q, i-1)
			has := func(g int) Slice { // before this round
				g -= g % weight
				return c.blocks(first(g), first(g+weight)-first(g))
			}
			mine := group / weight % q
			for distance := 1; distance < q; distance++ {
				peer := group + ((mine+distance)%q-mine)*weight
				r.exchange(first(peer), has(peer), first(peer), has(group))
			}
		}
	},
}

// groupDigits returns the number of digits of groups: the largest with no more groups than ranks.
func groupDigits(c *Call) (n int) {
	q := portRadix(c)
	for power(q, n+1) <= c.Size {
		n++
	}
	return n
}
