package racecheck_test

import "github.com/fabrictest/fabrictest/mpi"

// Programs with messages and collective operations: their buffers, and the order that they give to ranks.

// exchange sends a buffer from rank 0 to rank 1, and calls between while the requests are active.
func (r rank) exchange(b []byte, between func()) {
	if r.Rank() == 0 {
		q := r.request(r.Isend(b, 1, 0))
		between()
		r.wait(q)
	} else {
		q := r.request(r.Irecv(b, 0, 0))
		between()
		r.wait(q)
	}
}

func storeToSentBuffer(r rank) {
	b := buffer(8)
	if r.Rank() == 0 {
		q := r.request(r.Isend(b, 1, 0)) // RACE
		r.NoteStore(b)                   // RACE
		r.wait(q)
	} else {
		_, err := r.Recv(b, 0, 0)
		r.do(err)
	}
}

func loadOfSentBuffer(r rank) {
	b := buffer(8)
	r.exchange(b, func() {
		if r.Rank() == 0 {
			r.NoteLoad(b)
		}
	})
	r.NoteStore(b)
}

func loadOfReceiveBuffer(r rank) {
	b := buffer(8)
	if r.Rank() == 0 {
		r.do(r.Send(b, 1, 0))
	} else {
		q := r.request(r.Irecv(b, 0, 0)) // RACE
		r.NoteLoad(b[4:5])               // RACE
		r.wait(q)
	}
}

func twoReceivesIntoOneBuffer(r rank) {
	b := buffer(8)
	if r.Rank() == 0 {
		r.do(r.Send(b, 1, 0))
		r.do(r.Send(b, 1, 1))
	} else {
		q := r.request(r.Irecv(b, 0, 0)) // RACE
		_, err := r.Recv(b, 0, 1)        // RACE
		r.do(err)
		r.wait(q)
	}
}

func bufferedSendIsFree(r rank) {
	b := buffer(8)
	if r.Rank() == 0 {
		r.do(r.AttachBuffer(64))
		q := r.request(r.Ibsend(b, 1, 0))
		r.NoteStore(b)
		r.wait(q)
		r.do(r.DetachBuffer())
	} else {
		_, err := r.Recv(b, 0, 0)
		r.do(err)
	}
}

func persistentSend(r rank) {
	b := buffer(8)
	if r.Rank() == 0 {
		q := r.request(r.SendInit(b, 1, 0))
		r.NoteStore(b)
		r.do(q.Start())
		r.wait(q)
		r.NoteStore(b)
	} else {
		r.receiveInto(b, 0, 0)
	}
}

func persistentSendActive(r rank) {
	b := buffer(8)
	if r.Rank() == 0 {
		q := r.request(r.SendInit(b, 1, 0))
		r.do(q.Start()) // RACE
		r.NoteStore(b)  // RACE
		r.wait(q)
	} else {
		r.receiveInto(b, 0, 0)
	}
}

// receiveInto receives a message.
func (r rank) receiveInto(b []byte, from, tag int) {
	_, err := r.Recv(b, from, tag)
	r.do(err)
}

func getIntoSentBuffer(r rank) {
	win, b := r.window(8), buffer(8)
	r.do(win.Fence(0))
	if r.Rank() == 0 {
		r.do(win.Get(b, 1, 0)) // RACE
		r.do(r.Send(b, 1, 0))  // RACE
	} else {
		r.receiveInto(b, 0, 0)
	}
	r.do(win.Fence(0))
}

func storeToBroadcastBuffer(r rank) {
	b := buffer(8)
	q := r.request(r.Ibcast(b, 0)) // RACE
	if r.Rank() == 0 {
		r.NoteStore(b) // RACE
	}
	r.wait(q)
}

func loadOfBroadcastBuffer(r rank) {
	b := buffer(8)
	q := r.request(r.Ibcast(b, 0))
	if r.Rank() == 0 {
		r.NoteLoad(b)
	}
	r.wait(q)
	r.NoteStore(b)
}

func loadOfUnfinishedResult(r rank) {
	b, d := buffer(8), buffer(8)
	q := r.request(r.Iallreduce(b, d, mpi.Int64, mpi.Sum)) // RACE
	if r.Rank() == 1 {
		r.NoteLoad(d) // RACE
	}
	r.NoteLoad(b)
	r.wait(q)
}

func gatherRootOnly(r rank) {
	b, d := buffer(8), buffer(16)
	q := r.request(r.Igather(b, d, 0)) // RACE
	if r.Rank() == 0 {
		r.NoteLoad(d) // RACE
	} else {
		r.NoteStore(d) // only the root receives
	}
	r.wait(q)
}

func gapsBetweenBlocks(r rank) {
	b, d := buffer(8), buffer(32)
	counts, offsets := []int{8, 8}, []int{0, 16}
	q := r.request(r.Igatherv(b, d, counts, offsets, 0))
	r.NoteStore(d[8:16])
	r.wait(q)
}

func storeToBlock(r rank) {
	b, d := buffer(8), buffer(32)
	counts, offsets := []int{8, 8}, []int{0, 16}
	q := r.request(r.Igatherv(b, d, counts, offsets, 0)) // RACE
	if r.Rank() == 0 {
		r.NoteStore(d[16:17]) // RACE
	}
	r.wait(q)
}

func putInWindowOfCollective(r rank) {
	win := r.window(16)
	r.do(win.Fence(0))
	if r.Rank() == 0 {
		r.do(win.Put(buffer(8), 1, 8)) // RACE
	}
	r.do(r.Allgather(buffer(8), win.Memory())) // RACE
	r.do(win.Fence(0))
}

// The order that operations give to ranks: rank 0 puts and flushes before, and rank 1 loads after.

func afterBcast(r rank)   { r.after(func() { r.do(r.Bcast(buffer(8), 0)) }) }
func afterScatter(r rank) { r.after(func() { r.do(r.Scatter(buffer(16), buffer(8), 0)) }) }
func afterGather(r rank)  { r.after(func() { r.do(r.Gather(buffer(8), buffer(16), 1)) }) }
func afterReduce(r rank) {
	r.after(func() { r.do(r.Reduce(buffer(8), buffer(8), mpi.Int64, mpi.Sum, 1)) })
}

func afterAllreduce(r rank) {
	r.after(func() { r.do(r.Allreduce(buffer(8), buffer(8), mpi.Int64, mpi.Sum)) })
}

func afterAllgather(r rank) { r.after(func() { r.do(r.Allgather(buffer(8), buffer(16))) }) }
func afterAlltoall(r rank)  { r.after(func() { r.do(r.Alltoall(buffer(16), buffer(16))) }) }
func afterScan(r rank)      { r.after(func() { r.do(r.Scan(buffer(8), buffer(8), mpi.Int64, mpi.Sum)) }) }

func afterExscan(r rank) {
	r.after(func() { r.do(r.Exscan(buffer(8), buffer(8), mpi.Int64, mpi.Sum)) })
}

func afterIbarrier(r rank) { r.after(func() { r.wait(r.request(r.Ibarrier())) }) }

// These do not order rank 0 before rank 1.

func afterBcastOfOther(r rank)   { r.after(func() { r.do(r.Bcast(buffer(8), 1)) }) }
func afterEmptyBcast(r rank)     { r.after(func() { r.do(r.Bcast(nil, 0)) }) }
func afterScatterOfOther(r rank) { r.after(func() { r.do(r.Scatter(buffer(16), buffer(8), 1)) }) }
func afterGatherOfOther(r rank)  { r.after(func() { r.do(r.Gather(buffer(8), buffer(16), 0)) }) }
func afterReduceOfOther(r rank) {
	r.after(func() { r.do(r.Reduce(buffer(8), buffer(8), mpi.Int64, mpi.Sum, 0)) })
}

// scanBackwards has rank 1 put to rank 0, which does not wait for it in a scan.
func scanBackwards(r rank) {
	win := r.window(8)
	r.do(win.LockAll(0))
	if r.Rank() == 1 {
		r.do(win.Put(buffer(8), 0, 0)) // RACE
		r.do(win.Flush(0))
	} else {
		r.poll()
	}
	r.do(r.Scan(buffer(8), buffer(8), mpi.Int64, mpi.Sum))
	if r.Rank() == 0 {
		win.LoadLocal(0, 8) // RACE
	}
	r.do(win.UnlockAll())
}

func beforeWaitOfIbarrier(r rank) {
	win := r.window(8)
	r.do(win.LockAll(0))
	if r.Rank() == 0 {
		r.do(win.Put(buffer(8), 1, 0)) // RACE
		r.do(win.Flush(1))
	}
	q := r.request(r.Ibarrier())
	r.Compute(1e6)
	if r.Rank() == 1 {
		win.LoadLocal(0, 8) // RACE
	}
	r.wait(q)
	r.do(win.UnlockAll())
}

// The put comes after the start of the barrier.
func putAfterIbarrier(r rank) {
	win := r.window(8)
	r.do(win.LockAll(0))
	q := r.request(r.Ibarrier())
	if r.Rank() == 0 {
		r.do(win.Put(buffer(8), 1, 0)) // RACE
		r.do(win.Flush(1))
	}
	r.wait(q)
	r.Compute(1e6)
	if r.Rank() == 1 {
		win.LoadLocal(0, 8) // RACE
	}
	r.do(win.UnlockAll())
}

// A synchronous send ends after its receive has begun.
func afterSynchronousSend(r rank) {
	r.after(func() {
		if r.Rank() == 0 {
			r.receive(1)
		} else {
			r.do(r.Ssend(nil, 0, 0))
		}
	})
}

func afterStandardSend(r rank) {
	r.after(func() {
		if r.Rank() == 0 {
			r.receive(1)
		} else {
			r.do(r.Send(nil, 0, 0))
		}
	})
}

// Messages are received in the order of their sends. Rank 0 sends one before and one after the put.
func (r rank) twoMessages(receive func(win *mpi.Win)) {
	win := r.window(8)
	r.do(win.LockAll(0))
	if r.Rank() == 0 {
		r.do(r.Send(nil, 1, 0))
		r.do(win.Put(buffer(8), 1, 0)) // RACE
		r.do(win.Flush(1))
		r.do(r.Send(nil, 1, 0))
	} else {
		receive(win)
	}
	r.do(win.UnlockAll())
}

func afterSecondMessage(r rank) {
	r.twoMessages(func(win *mpi.Win) {
		first, second := r.request(r.Irecv(nil, 0, 0)), r.request(r.Irecv(nil, mpi.AnySource, mpi.AnyTag))
		r.wait(second)
		win.LoadLocal(0, 8)
		r.wait(first)
	})
}

func afterFirstMessage(r rank) {
	r.twoMessages(func(win *mpi.Win) {
		first, second := r.request(r.Irecv(nil, 0, 0)), r.request(r.Irecv(nil, 0, 0))
		r.wait(first)
		r.Compute(1e6)
		win.LoadLocal(0, 8) // RACE
		r.wait(second)
	})
}

// The matched probe takes the first message, and the receive the second one.
func afterSecondMessageProbed(r rank) {
	r.twoMessages(func(win *mpi.Win) {
		m, _, err := r.Mprobe(0, 0)
		r.do(err)
		r.receive(0)
		win.LoadLocal(0, 8)
		_, err = m.Recv(nil)
		r.do(err)
	})
}

func afterFirstMessageProbed(r rank) {
	r.twoMessages(func(win *mpi.Win) {
		r.Compute(1e6)
		m, _, err := r.Mprobe(0, 0)
		r.do(err)
		_, err = m.Recv(nil)
		r.do(err)
		win.LoadLocal(0, 8) // RACE
		r.receive(0)
	})
}

// chain passes a message from rank 0 over 2 and 3 to rank 1.
func (r rank) chain(thirdWaits bool) {
	switch r.Rank() {
	case 0:
		r.do(r.Send(nil, 2, 0))
	case 2:
		r.receive(0)
		r.do(r.Send(nil, 3, 0))
	case 3:
		if thirdWaits {
			r.receive(2)
		}
		r.do(r.Send(nil, 1, 0))
		if !thirdWaits {
			r.receive(2)
		}
	case 1:
		r.receive(3)
	}
}

func afterChain(r rank)       { r.after(func() { r.chain(true) }) }
func afterBrokenChain(r rank) { r.after(func() { r.chain(false) }) }

// A split orders all ranks, and comes before the put here.
func afterBarrierOfPart(r rank) {
	c, err := r.Split(r.Rank()/2, 0)
	r.do(err)
	r.after(func() { r.do(c.Barrier()) })
}

func afterBarrierOfOtherParts(r rank) {
	c, err := r.Split(r.Rank()%2, 0)
	r.do(err)
	r.after(func() { r.do(c.Barrier()) })
}
