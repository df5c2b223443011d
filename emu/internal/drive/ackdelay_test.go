package drive

import "testing"

// ackCall is one call of an ackDelay in a table test.
type ackCall struct {
	name string
	call func(*ackDelay) (delay bool)
}

var (
	callReceived   = ackCall{"received", func(a *ackDelay) bool { a.received(); return false }}
	callSent       = ackCall{"sent", func(a *ackDelay) bool { a.sent(); return false }}
	callPosted     = ackCall{"posted", func(a *ackDelay) bool { a.posted(); return false }}
	callDelivered  = ackCall{"delivered", (*ackDelay).delivered}
	callEmpty      = ackCall{"empty poll", func(a *ackDelay) bool { return a.emptyPoll(false) }}
	callEmptyWrite = ackCall{"empty poll with packets", func(a *ackDelay) bool { return a.emptyPoll(true) }}
	callOther      = ackCall{"not answered", func(a *ackDelay) bool { a.notAnswered(); return false }}
)

func TestAckDelay(t *testing.T) {
	interactive := ackDelay{interactive: true}
	almostNot := ackDelay{interactive: true, unanswered: maxUnanswered - 1}
	for _, c := range []struct {
		name  string
		start ackDelay
		calls []ackCall
		delay bool // result of the last call
		want  ackDelay
	}{
		{"packets wait to be acknowledged", ackDelay{}, []ackCall{callReceived}, false, ackDelay{pending: true}},
		{"a send includes the acknowledgements", ackDelay{}, []ackCall{callReceived, callSent}, false, ackDelay{}},
		{"not before the first answer", ackDelay{}, []ackCall{callDelivered}, false, ackDelay{awaiting: true}},
		{"an answer makes it interactive", ackDelay{}, []ackCall{callDelivered, callPosted}, false, interactive},
		{"work that answers nothing does not", ackDelay{}, []ackCall{callPosted}, false, ackDelay{}},
		{"delayed for an interactive application", interactive, []ackCall{callDelivered}, true, ackDelay{interactive: true, awaiting: true}},
		{"polled again without an answer", interactive, []ackCall{callDelivered, callEmpty}, false, ackDelay{interactive: true, unanswered: 1}},
		{"only the first empty poll counts", interactive, []ackCall{callDelivered, callEmpty, callEmpty}, false, ackDelay{interactive: true, unanswered: 1}},
		{"other calls count too", interactive, []ackCall{callDelivered, callOther}, false, ackDelay{interactive: true, unanswered: 1}},
		{"too many without an answer", almostNot, []ackCall{callDelivered, callEmpty}, false, ackDelay{unanswered: maxUnanswered}},
		{"an answer resets the count", almostNot, []ackCall{callDelivered, callPosted}, false, interactive},
		{"a write without completion may be answered", interactive, []ackCall{callEmptyWrite}, true, ackDelay{interactive: true, awaiting: true}},
		{"until the next poll", interactive, []ackCall{callEmptyWrite, callEmptyWrite}, false, ackDelay{interactive: true, unanswered: 1}},
		{"a write is no reason to delay before the first answer", ackDelay{}, []ackCall{callEmptyWrite}, false, ackDelay{awaiting: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, delay := c.start, false
			for _, call := range c.calls {
				delay = call.call(&a)
			}
			if a != c.want || delay != c.delay {
				t.Errorf("%+v, delay %v; want %+v, %v", a, delay, c.want, c.delay)
			}
		})
	}
}
