package sim

// spray chooses which packet of the cable arrives next. It returns true if the event has been
// scheduled again, for the arrival of a packet that overtakes the first.
func (d *linkDir) spray() bool {
	if d.sprayed {
		d.sprayed = false
		return false
	}
	n := 1
	for pk := d.first; pk.next != nil && pk.overtakenBy < d.cfg.Spray && n <= d.cfg.Spray; pk = pk.next {
		n++
	}
	i := d.net.w.Choose("spray", n)
	if i == 0 {
		return false
	}
	before := d.first
	for range i - 1 {
		before = before.next
	}
	chosen := before.next
	d.net.w.nameChoice(func() (picked, first string) { return chosen.describe(), d.first.describe() })
	before.next = chosen.next
	if d.last == chosen {
		d.last = before
	}
	for pk := d.first; ; pk = pk.next { // they arrive right after the chosen one
		pk.arrival = entryOrder{chosen.arrival.at, d.net.w.queue.nextSeq()}
		pk.overtakenBy++
		if pk == before {
			break
		}
	}
	chosen.next, d.first = d.first, chosen
	d.sprayed = true
	d.schedule(d.net.w)
	return true
}

// Faults of a packet, as World.Choose("fault") numbers them.
const (
	faultLose = iota + 1
	faultDuplicate
	faultSwap // only if another packet is on the cable
)

// arriveWithFaults passes on a packet that has crossed the last cable to its receiver, after the
// fault that the Chooser picks, if any.
func (d *linkDir) arriveWithFaults(pk *packet) {
	overtaken := d.overtaken
	d.overtaken = nil
	w := d.net.w
	fault := 0
	if w.faults > 0 && overtaken == nil {
		n := faultSwap
		if d.first != nil {
			n++
		}
		if fault = w.Choose("fault", n); fault > 0 {
			w.faults--
		}
	}
	if fault > 0 {
		w.nameChoice(func() (picked, first string) {
			return [...]string{faultLose: "loses ", faultDuplicate: "duplicates ", faultSwap: "delays "}[fault] + pk.describe(), ""
		})
	}
	switch fault {
	case faultLose:
		d.net.reportDrop(d.place, "fault", &pk.Datagram)
		d.net.releasePacket(pk)
	case faultDuplicate:
		second := d.net.newPacket(&pk.Datagram, pk.from, pk.to)
		second.dir = d
		d.impair(pk)
		d.impair(second)
	case faultSwap:
		d.overtaken = pk
	default:
		d.impair(pk)
	}
	if overtaken != nil {
		d.impair(overtaken)
	}
}
