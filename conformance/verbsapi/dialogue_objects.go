package verbsapi

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// object is an object of the device, with its model and its kind.
type object struct {
	*model.VerbsObject
	kind   *objectKind
	name   string
	handle closer
	used   []*object // objects that it was created with
	// expect fails the case unless the attributes of the object are those of its creation, or of
	// its last modification.
	expect func()
}

// objectKind describes how objects of a kind are created and used.
type objectKind struct {
	name  string
	needs verbs.Caps
	// uses are the names of the kinds of objects with which it is created.
	uses []string
	// create calls the verb that creates an object, with objects of the kinds in uses. n varies its
	// arguments.
	create func(s *objectSession, used []closer, n int) (closer, error)
	// invalid calls the same verb with invalid arguments; nil if no arguments are invalid.
	invalid func(s *objectSession, used []closer, n int) error
	// inspect checks a new object, and returns object.expect.
	inspect func(s *objectSession, o *object, n int) (expect func())
	// use calls a verb of the object, which must return ErrClosed if it is closed; nil if it
	// has no verbs but Close.
	use func(s *objectSession, o *object, n int) error
}

// objectStep is a step that creates, uses or closes an object.
type objectStep struct {
	action  objectAction
	kind    *objectKind
	choices [4]int // select the object, or those with which it is created, among the existing ones
	n       int    // varies the arguments
}

type objectAction int

const (
	createObject objectAction = iota
	createInvalid
	useObject
	closeObject
)

func (s objectStep) String() string {
	actions := [...]string{"create", "try to create, with invalid arguments,", "use", "close"}
	return fmt.Sprintf("%s a %s (choices %v, variant %d)", actions[s.action], s.kind.name, s.choices, s.n)
}

// objectSession creates, uses and closes objects of the device in random order.
type objectSession struct {
	*rig.Rig
	limits  verbs.DeviceAttr
	kinds   []*objectKind
	objects []*object // in the order of creation, closed ones included
	buf     []byte
}

// newObjectSession returns a session with the kinds of objects that the device has, without SRQs
// that cannot be queried.
func newObjectSession(r *rig.Rig) rig.DialogueSession[objectStep] {
	s := &objectSession{Rig: r, limits: r.QueryDevice(), buf: make([]byte, 256)}
	caps := r.Caps
	if srq, _ := createQueriedSRQ(r, srqInit(r)); srq != nil {
		r.Must("a shared receive queue that can be closed", srq.Close())
	} else {
		caps &^= verbs.CapSRQ
	}
	for i := range objectKinds {
		if k := &objectKinds[i]; caps.Has(k.needs) {
			s.kinds = append(s.kinds, k)
		}
	}
	return s
}

// maxOpenObjects is the largest number of objects that are not closed.
const maxOpenObjects = 24

// Draw returns a random step. It creates no more than maxOpenObjects.
func (s *objectSession) Draw(random *rand.Rand) objectStep {
	step := objectStep{kind: s.kinds[random.IntN(len(s.kinds))], n: random.IntN(1000)}
	for i := range step.choices {
		step.choices[i] = random.IntN(1000)
	}
	open := 0
	for _, o := range s.objects {
		if !o.Closed() {
			open++
		}
	}
	switch p := random.IntN(100); {
	case p < 40 && open < maxOpenObjects:
		step.action = createObject
	case p < 50 && open < maxOpenObjects && step.kind.invalid != nil:
		step.action = createInvalid
	case p < 65:
		step.action = useObject
	default:
		step.action = closeObject
	}
	return step
}

// Play performs a step, and then checks that a random object has not changed if it is open.
func (s *objectSession) Play(step objectStep) {
	switch step.action {
	case createObject:
		s.create(step.kind, step.choices[:], step.n)
	case createInvalid:
		used := s.usedBy(step.kind, step.choices[:], step.n)
		s.MustFail(fmt.Sprintf("a %s with invalid arguments", step.kind.name), step.kind.invalid(s, handlesOf(used), step.n), nil)
	case useObject:
		if o := s.choose(step.kind.name, step.choices[0]); o != nil {
			s.use(o, step.n)
		}
	case closeObject:
		if o := s.choose(step.kind.name, step.choices[0]); o != nil {
			s.close(o)
		}
	}
	if len(s.objects) > 0 {
		if o := s.objects[step.n%len(s.objects)]; !o.Closed() {
			o.expect()
		}
	}
}

// choose returns one of the objects of this kind, or nil if there is none. In one of eight choices it
// may be a closed object.
func (s *objectSession) choose(kind string, choice int) *object {
	mayBeClosed := choice%8 == 0
	var found []*object
	for _, o := range s.objects {
		if o.kind.name == kind && (mayBeClosed || !o.Closed()) {
			found = append(found, o)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return found[choice/8%len(found)]
}

// usedBy returns the objects with which an object of this kind is created. It creates those of which
// none exists.
func (s *objectSession) usedBy(kind *objectKind, choices []int, n int) (used []*object) {
	for i, name := range kind.uses {
		o := s.choose(name, choices[i])
		if o == nil {
			k := slices.IndexFunc(s.kinds, func(k *objectKind) bool { return k.name == name })
			o = s.create(s.kinds[k], choices, n)
		}
		used = append(used, o)
	}
	return used
}

// handlesOf returns the verbs objects of the session's objects.
func handlesOf(objects []*object) (handles []closer) {
	for _, o := range objects {
		handles = append(handles, o.handle)
	}
	return handles
}

// create creates an object, which must fail if one of the objects with which it is created is
// closed, and succeed otherwise. After a failure it creates one with open objects.
func (s *objectSession) create(kind *objectKind, choices []int, n int) *object {
	used := s.usedBy(kind, choices, n)
	names, models := "", make([]*model.VerbsObject, 0, len(used))
	for _, o := range used {
		names += " " + o.name
		models = append(models, o.VerbsObject)
	}
	handle, err := kind.create(s, handlesOf(used), n)
	m := model.NewVerbsObject(models...)
	if m == nil {
		s.MustFail(fmt.Sprintf("a %s with%s, one of which is closed,", kind.name, names), err, nil)
		return s.create(kind, []int{1, 1, 1, 1}, n) // choices that are no multiples of 8: open objects
	}
	s.Must(fmt.Sprintf("a %s with%s", kind.name, names), err)
	o := &object{VerbsObject: m, kind: kind, name: fmt.Sprintf("%s %d", kind.name, len(s.objects)+1), handle: handle, used: used}
	s.Note("created %s with%s", o.name, cmp.Or(names, " nothing"))
	s.objects = append(s.objects, o)
	o.expect = kind.inspect(s, o, n)
	return o
}

// use calls a verb of an object, which must return ErrClosed if the object is closed. Otherwise the
// verb must succeed, and the object must have the attributes that were set.
func (s *objectSession) use(o *object, n int) {
	switch {
	case o.kind.use == nil:
	case o.Closed():
		s.MustFail("a verb of "+o.name+", which is closed,", o.kind.use(s, o, n), verbs.ErrClosed)
	default:
		s.Must("a verb of "+o.name, o.kind.use(s, o, n))
		o.expect()
	}
}

// close closes an object. This must fail if the object is closed already or other objects use it.
// An object in use must keep its attributes, and closing the objects that it uses must fail, too.
func (s *objectSession) close(o *object) {
	want, got := o.Close(), o.handle.Close()
	s.Note("close %s: %v", o.name, got)
	_, isMembership := o.handle.(*membership)
	switch {
	case want == nil:
		s.Must(o.name+", which no object uses, to be closed", got)
	case isMembership: // no manual page names the error of a queue pair that is not in the group
		s.MustFail("leaving a group twice", got, nil)
	default:
		s.MustFail("closing "+o.name, got, want)
		if errors.Is(want, verbs.ErrBusy) {
			o.expect()
			for _, u := range o.used { // must fail too: o is not closed and uses them
				s.close(u)
			}
		}
	}
}

// Close closes all objects, the newest first. None may be in use then.
func (s *objectSession) Close() {
	for _, o := range slices.Backward(s.objects) {
		if !o.Closed() {
			s.close(o)
		}
	}
}

// others calls f for each other open object of the same kind.
func (s *objectSession) others(o *object, f func(other *object)) {
	for _, other := range s.objects {
		if other != o && other.kind == o.kind && !other.Closed() {
			f(other)
		}
	}
}

// expectStable calls get, and returns a function that fails the case unless get still returns the
// same.
func expectStable[A comparable](s *objectSession, what string, get func() A) func() {
	was := get()
	return func() {
		now := get()
		s.Check(now == was, fmt.Sprintf("%s %+v, as before", what, was), "%+v", now)
	}
}

// objectDialogue returns a case with dialogues of objectSession as its body.
func objectDialogue(c conformance.Case) conformance.Case {
	c.Run = rig.Dialogue[objectStep]{Dialogues: 25, Steps: 60, Open: newObjectSession}.Body()
	return c
}

var objectDialogueCases = []conformance.Case{objectDialogue(conformance.Case{
	ID: "dialogue/verbs-objects/create-and-close",
	Cite: cite("ibv_dealloc_pd(3)", "verbs/pd/1", "verbs/cq/9", "verbs/srq/9", "verbs/qp/7", "verbs/channel/11",
		"verbs/xrc/2", "verbs/close/1", "verbs/mr/2", "verbs/qp/5"),
	Labels:  []string{conformance.Dangerous}, // the library of Linux's siw crashes
	Title:   "Objects can be created and closed in any order; those in use are busy, and closed ones stay closed",
	Sends:   "random verb calls that create, use and close objects of every kind, some with closed objects or invalid arguments",
	Expects: "the results of a model of the objects and of their uses; objects that keep their attributes; keys and numbers of their own",
	Defects: []string{"BusyClosed", "ClosesTwice", "MRKeysRepeat", "QPNsRepeat", "AHAttrForgotten", "CapsShort"},
})}
