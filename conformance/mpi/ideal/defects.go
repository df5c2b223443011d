package ideal

import (
	"fmt"
	"reflect"
)

// Defects are the defects of a runtime. Each breaks a rule, and makes at least one case fail.
type Defects struct {
	// Order and matching.
	Overtakes           bool `does:"messages of one sender overtake each other"`
	OvertakesRarely     bool `does:"one message in 256 is overtaken by the next"`
	SmallOvertakes      bool `does:"small messages overtake large ones"`
	LargeOvertakes      bool `does:"large messages overtake small ones"`
	SyncOvertaken       bool `does:"synchronous messages are overtaken by others"`
	EmptyOvertakes      bool `does:"messages without data overtake others"`
	PostedLastFirst     bool `does:"of several receives that match, the last posted gets the message"`
	ExactFirst          bool `does:"exact receives are preferred to earlier ones with wildcards"`
	WildFirst           bool `does:"receives with wildcards are preferred to earlier exact ones"`
	UnexpectedByTag     bool `does:"of several messages that wait, a receive gets the one with the lowest tag"`
	UnexpectedLastFirst bool `does:"of several messages that wait, a receive gets the last"`
	TagIgnored          bool `does:"receives take messages of any tag"`
	TagCut              bool `does:"only the lower 15 bits of tags are compared"`
	SourceIgnored       bool `does:"receives take messages of any source"`
	DupSharesContext    bool `does:"a duplicate's messages are received in the original, and the other way round"`
	WorldMatches        bool `does:"messages of all communicators are matched as those of the world"`
	SelfIsWorld         bool `does:"Self shares its messages with the world"`
	CollectivesShow     bool `does:"messages of barriers are seen by receives of any tag"`

	// Content of messages.
	EmptyDropped  bool `does:"messages without data are lost"`
	SelfLost      bool `does:"messages to oneself are lost"`
	ReadyLost     bool `does:"ready messages are lost"`
	ReadyEmpty    bool `does:"ready messages arrive without data"`
	FloodLost     bool `does:"messages are lost when 500 wait already"`
	LastByteLost  bool `does:"the last byte of messages is lost"`
	RaggedLost    bool `does:"what is behind the last eight bytes is lost"`
	LargeDamaged  bool `does:"a bit of messages above 64 KiB is turned"`
	MiddleDamaged bool `does:"a bit in the middle of messages is turned"`
	BufferWiped   bool `does:"what is behind a message in its buffer is cleared"`
	LateCopy      bool `does:"sends are complete before their data was read"`

	// Statuses.
	WildSourceUntold bool `does:"receives from anybody do not tell the source"`
	WildTagUntold    bool `does:"receives of any tag do not tell the tag"`
	CountIsRoom      bool `does:"the count is that of the buffer"`
	SourceIsOfWorld  bool `does:"sources are ranks of the world in all communicators"`

	// Modes.
	SyncEarly          bool `does:"synchronous sends complete without a receive"`
	SyncSmallEarly     bool `does:"small synchronous sends complete without a receive"`
	SyncAtLimitEarly   bool `does:"synchronous sends of the largest eager size complete without a receive"`
	SyncOnArrival      bool `does:"synchronous sends complete when the message has arrived"`
	ProbeCompletesSync bool `does:"synchronous sends complete when they are probed"`
	BufferedWaits      bool `does:"buffered sends wait for their receive"`
	BufferUnbounded    bool `does:"buffered sends need no attached buffer"`
	BufferLeaks        bool `does:"room in the attached buffer does not come back"`
	AttachesTwice      bool `does:"a second buffer can be attached"`
	DetachDrops        bool `does:"DetachBuffer drops messages that have not left"`
	LargeNeedsWait     bool `does:"large sends go on only while they are waited for"`
	IsendWaits         bool `does:"Isend waits until it is received"`
	SendrecvInTurn     bool `does:"Sendrecv receives when its send is received"`
	ReplaceSendsLate   bool `does:"SendrecvReplace sends something else than what was in the buffer"`

	// Truncation.
	TruncatesSilently   bool `does:"messages that are too long are cut without an error"`
	TruncatesOneByte    bool `does:"a message that is one byte too long is cut silently"`
	TruncateCountsAll   bool `does:"the count of a message that was cut is that of all of it"`
	TruncateFailsSender bool `does:"a message that is too long is an error of its sender"`
	TruncateWedges      bool `does:"after a message that was too long nothing works"`
	TruncateKeepsRest   bool `does:"the rest of a message that was too long is received as another"`

	// MPI_PROC_NULL.
	NullBlocks      bool `does:"communication with nobody waits for somebody"`
	NullRefused     bool `does:"nobody is no rank"`
	NullIsAnySource bool `does:"a receive from nobody tells of anybody"`
	NullWipes       bool `does:"a receive from nobody clears the buffer"`

	// Probes.
	ProbeConsumes    bool `does:"a message that was probed is gone"`
	ProbeCutsCount   bool `does:"probes tell 4096 bytes at most"`
	ProbeLatest      bool `does:"probes tell of the message that came last"`
	ProbeSeesMatched bool `does:"probes find messages that receives have got"`
	IprobeNever      bool `does:"Iprobe finds nothing"`
	IprobeAlways     bool `does:"Iprobe finds something where nothing is"`
	MprobeLeaves     bool `does:"Mprobe leaves the message for others"`
	MprobeGetsNext   bool `does:"the handle of Mprobe receives another message"`
	MessageTwice     bool `does:"a message that was taken out can be received twice"`

	// Cancel.
	CancelIgnored      bool `does:"Cancel does nothing"`
	CancelUntold       bool `does:"the status does not tell that a receive was cancelled"`
	CancelFails        bool `does:"waiting for a cancelled receive is an error"`
	CancelKeepsPosted  bool `does:"a cancelled receive still takes a message"`
	CancelsWhatArrived bool `does:"Cancel of a receive that has its message throws it away"`
	CancelsFirst       bool `does:"Cancel gives up the first receive that is posted"`
	CancelBlanksBuffer bool `does:"Cancel clears the buffer"`

	// Requests.
	PersistentOnce       bool `does:"a persistent request can be started once"`
	InitStarts           bool `does:"persistent requests are started when they are made"`
	InitCopies           bool `does:"persistent sends send what was in the buffer when they were made"`
	ActiveStarts         bool `does:"Start of an active request is no error"`
	PlainStarts          bool `does:"Start of a request that is not persistent is no error"`
	StartAllMissesLast   bool `does:"StartAll does not start the last"`
	InactiveHangs        bool `does:"waiting for an inactive request does not end"`
	InactiveKeepsStatus  bool `does:"Wait of an inactive request tells of its last message"`
	InactiveTestsFalse   bool `does:"Test of an inactive request is false"`
	CompleteStaysActive  bool `does:"requests stay active when they were waited for"`
	TestNever            bool `does:"Test is never true"`
	GetStatusFrees       bool `does:"GetStatus ends the request"`
	FreeCancels          bool `does:"Free of a send loses its message"`
	FreeUnposts          bool `does:"Free of a receive takes it back"`
	StatusesReversed     bool `does:"statuses of several requests are in another order"`
	WaitAllMissesLast    bool `does:"WaitAll does not wait for the last"`
	WaitAllEndsAtError   bool `does:"WaitAll does not wait for requests behind one that failed"`
	SeveralSwallowErrors bool `does:"WaitAll returns no errors"`
	ErrorOfTheWrong      bool `does:"WaitAll tells errors of other requests"`
	NilIsRankZero        bool `does:"the status of a null request is not empty"`
	IndexOff             bool `does:"WaitAny and WaitSome return the next index"`
	NoneIsFirst          bool `does:"WaitAny returns 0 where no request is active"`
	SomeTwice            bool `does:"WaitSome returns an index twice"`
	TestAllTakesSome     bool `does:"TestAll ends the requests that are complete though others are not"`
	TestAllNever         bool `does:"TestAll is never true"`

	// Communicators.
	DupReverses        bool `does:"a duplicate has its ranks in another order"`
	ColorsMixed        bool `does:"Split puts all colours together"`
	KeysIgnored        bool `does:"Split ignores keys"`
	TiesReversed       bool `does:"Split reverses ranks with equal keys"`
	NegativeKeysLast   bool `does:"Split puts negative keys last"`
	UndefinedJoins     bool `does:"Split puts ranks without a colour into one"`
	ColorsUnchecked    bool `does:"Split takes negative colours"`
	NodesMixed         bool `does:"SplitNode puts all hosts together"`
	NodeIsRank         bool `does:"Node returns the rank"`
	SplitDropsReceives bool `does:"Split drops receives that are posted"`
	FreeBreaksParent   bool `does:"Free of a duplicate frees the original"`
	FreedIsUsable      bool `does:"a freed communicator can be used"`
	FreeDrops          bool `does:"Free drops receives that are posted"`
	ClockRunsBack      bool `does:"Wtime goes back"`
	ComputesNothing    bool `does:"Compute takes no time"`
	InvalidateClears   bool `does:"Invalidate clears the memory"`

	// Errors.
	RanksUnchecked      bool `does:"ranks are not checked"`
	TagsUnchecked       bool `does:"tags are not checked"`
	TagMaxRefused       bool `does:"the largest tag is refused"`
	ErrorWedges         bool `does:"after an error nothing works"`
	ErrorsWithoutClass  bool `does:"errors are all of one class"`
	ErrorsWithoutCall   bool `does:"errors do not tell the call"`
	HandlerIgnored      bool `does:"error handlers are not called"`
	HandlerNotInherited bool `does:"communicators do not inherit error handlers"`
	HandlerOfParent     bool `does:"a duplicate's error handler becomes the original's"`

	// Collective operations.
	BarrierEarly        bool `does:"Barrier does not wait"`
	BarrierMissesOne    bool `does:"barriers wait for all but one"`
	IbarrierEarly       bool `does:"an Ibarrier is complete at once"`
	RootIsZero          bool `does:"Bcast brings rank 0's data whoever is the root"`
	BcastGuesses        bool `does:"Bcast does not wait for the root"`
	CollectivesCut      bool `does:"collective operations lose the end of the data"`
	ReducesBySum        bool `does:"all reductions are sums"`
	ReduceMissesLast    bool `does:"Allreduce leaves the last rank out"`
	ReduceDiffers       bool `does:"Allreduce has another result on rank 1"`
	ReduceChangesInput  bool `does:"Allreduce writes its result to the send buffer, too"`
	TypesIgnored        bool `does:"reductions are done byte by byte"`
	ReductionsUnchecked bool `does:"types, operations and lengths are not checked"`
	GatherReversed      bool `does:"Allgather has the ranks in another order"`
	NotTransposed       bool `does:"Alltoall brings the sender's own part"`

	// Windows.
	WinCopies            bool `does:"WinCreate makes a copy of the buffer"`
	SizesAlike           bool `does:"Size is that of one's own window"`
	WindowsMixed         bool `does:"all windows are the first"`
	WindowRanksOfWorld   bool `does:"operations go to another rank than the communicator's"`
	FreedWindowIsUsable  bool `does:"a freed window can be used"`
	PutsCut              bool `does:"the last byte of puts is lost"`
	PutsCutLarge         bool `does:"puts end after 64 KiB"`
	PutsOff              bool `does:"puts are off by one byte"`
	SelfPutsLost         bool `does:"puts to oneself are lost"`
	GetsCut              bool `does:"the last byte of gets is lost"`
	GetsNothing          bool `does:"gets bring nothing"`
	FenceEarly           bool `does:"Fence does not wait for operations"`
	FenceAlone           bool `does:"Fence does not wait for other ranks"`
	PostForgotten        bool `does:"a Post is forgotten while its origin accesses another rank"`
	StartIgnoresPost     bool `does:"operations do not wait for Post"`
	CompleteEarly        bool `does:"Complete does not wait for operations"`
	WaitEarly            bool `does:"Wait does not wait for origins"`
	WaitsForFirst        bool `does:"Wait waits for the first origin only"`
	LocksAlike           bool `does:"locks exclude nobody"`
	ExclusiveLetsShared  bool `does:"exclusive and shared locks do not exclude each other"`
	SharedExcludes       bool `does:"shared locks exclude each other"`
	UnlockEarly          bool `does:"Unlock does not wait for operations"`
	FlushEarly           bool `does:"Flush does not wait"`
	FlushAllMisses       bool `does:"FlushAll waits for rank 0 only"`
	FlushLocalEarly      bool `does:"FlushLocal does not wait"`
	RequestsEarly        bool `does:"requests of windows are complete at once"`
	NothingWhileBusy     bool `does:"nothing is done at a rank that computes"`
	AccumulatesRace      bool `does:"accumulates read and write in two steps"`
	NeighboursRace       bool `does:"accumulates of narrow types write the words around them back"`
	AccumulatesReplace   bool `does:"accumulates replace"`
	AccumulatesUnordered bool `does:"accumulates of one rank overtake each other"`
	ElementsTorn         bool `does:"elements are replaced in halves"`
	FetchesNew           bool `does:"results are those of after the operation"`
	NoOpWrites           bool `does:"NoOp replaces"`
	AlwaysSwaps          bool `does:"CompareAndSwap does not compare"`
	NeverSwaps           bool `does:"CompareAndSwap does not swap"`
	SwapsUnequal         bool `does:"CompareAndSwap swaps what is not as expected"`
	EmptyOperationsHang  bool `does:"operations without data are never done"`
	OriginsReused        bool `does:"results for others are put into the buffer of an earlier put"`
	RangesUnchecked      bool `does:"operations beyond a window are ignored"`
	RangeErrorWrites     bool `does:"operations beyond a window do what fits"`
	FencesOverlap        bool `does:"any epoch can begin between fences, after operations too"`
	EpochsUnchecked      bool `does:"epochs are not checked"`
}

// Named returns Defects with only the field called name set.
func Named(name string) (Defects, error) {
	var defects Defects
	field := reflect.ValueOf(&defects).Elem().FieldByName(name)
	if !field.IsValid() {
		return defects, fmt.Errorf("the ideal runtime cannot have a defect %q", name)
	}
	field.SetBool(true)
	return defects, nil
}

// Descriptions returns what each defect does, by the name of its field in Defects.
func Descriptions() map[string]string {
	all := make(map[string]string)
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Defects]()) {
		all[field.Name] = field.Tag.Get("does")
	}
	return all
}
