package sim

import "fmt"

// ChoiceNamer is a Chooser that is told what it has picked, if that is not the first alternative.
type ChoiceNamer interface {
	Chooser
	// NameChoice is called after Choose, with texts for people. A fault has no first.
	NameChoice(picked, first string)
}

// nameChoice tells the Chooser what it has picked.
func (w *World) nameChoice(texts func() (picked, first string)) {
	if c, ok := w.chooser.(ChoiceNamer); ok {
		c.NameChoice(texts())
	}
}

// describe names a program or an event.
func (w *World) describe(c *candidate, isProgram bool) string {
	if isProgram {
		return c.entity.(*Proc).name
	}
	s := &w.queue.slots[w.queue.heap[c.pos].slot&slotMask]
	if s.timer != nil {
		return describeHandler(s.timer.h)
	}
	return describeHandler(s.h)
}

// describeHandler names an event by its handler.
func describeHandler(h Handler) string {
	switch h := h.(type) {
	case *linkDir:
		return h.first.describe()
	case *cableArrival:
		return (*packet)(h).describe()
	case *afterImpairment:
		return (*packet)(h).describe()
	case *leavesSendStack:
		return (*packet)(h).describe()
	case *leavesSender:
		return (*packet)(h).describe()
	case *leavesReceiver:
		return (*packet)(h).describe()
	case *leavesRecvStack:
		return (*packet)(h).describe()
	case *placement:
		return fmt.Sprintf("a write of %d B to memory by %s", h.bytes, h.driver.Port.Name())
	case *Driver:
		return "a timer of " + h.Port.Name()
	case *procTimerHandler:
		return "the timer of " + (*Proc)(h).name
	}
	return "another event"
}

// describe names a packet on its path.
func (pk *packet) describe() string {
	if pk == nil {
		return "a packet"
	}
	text := fmt.Sprintf("a packet of %d B from %s", pk.size, pk.from.Name())
	if pk.to != nil {
		text += " to " + pk.to.Name()
	}
	return text
}
