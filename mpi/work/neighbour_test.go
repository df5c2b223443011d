package work

// neighbour makes each rank send a message to the next rank and receive one from the
// previous rank.
func neighbour(j *job) {
	send, recv := make([]byte, max(j.p.Bytes, 64)), make([]byte, max(j.p.Bytes, 64))
	next, previous := (j.Rank()+1)%j.Size(), (j.Rank()+j.Size()-1)%j.Size()
	j.runRounds(map[Class]int{ClassT: 2, ClassS: 20, ClassW: 200, ClassA: 2000}, func(round int) {
		j.spendComputePart(1)
		fill(send, j.messageKey(j.Rank(), next, round))
		r := j.Irecv(recv, previous, 1)
		j.Send(send, next, 1)
		j.waitAll(r)
		j.checkContents(recv, j.messageKey(previous, j.Rank(), round), "message of rank %d in round %d", previous, round)
	})
}
