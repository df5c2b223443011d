package racecheck_test

import "testing"

// written are the programs whose label was decided by hand: a program races if its lines say so.
var written = []struct {
	category string
	ranks    int
	programs []func(rank)
	shared   string // function that has lines of the race
}{
	{category: "sync: local buffer", ranks: 2, programs: []func(rank){
		fenceLoadInPhase, fenceLoadAfterPhase, lockLoadBeforeUnlock, lockLoadAfterUnlock, flushLoadBefore, flushLoadAfter,
		flushLocalAllLoadBefore, flushLocalAllLoadAfter, requestLoadBeforeWait, requestLoadAfterWait, startLoadBeforeComplete, startLoadAfterComplete,
	}},
	{category: "sync: origin and target", ranks: 2, programs: []func(rank){
		flushAllWithoutBarrier, flushAllAndBarrier, lockAllLoadInEpoch, unlockAllLoadBeforeBarrier, unlockAllLoadAfterBarrier,
		unlockAfterBarrier, unlockLoadBeforeBarrier, unlockLoadAfterBarrier, lockOfOtherWindowAsSignal, exclusiveLockOfBoth,
		loadBeforeReceive, loadAfterReceive, polling,
	}},
	{category: "sync: origin and target", ranks: 3, programs: []func(rank){loadAfterMessageOfThird}},
	{category: "sync: two origins", ranks: 3, programs: []func(rank){
		fenceTwoOriginsInPhase, fenceTwoOriginsInTwoPhases, twoOriginsInOneExposure, twoOriginsInTwoExposures,
		exclusiveLockOfTwoOrigins, putAfterMessageOfOtherOrigin,
	}},
	{category: "sync: same origin", ranks: 2, programs: []func(rank){
		sameOriginPutGet, sameOriginPutFlushGet, sameOriginPutFlushLocalGet, sameOriginGetFlushLocalGet,
	}},
	{category: "overlap and element types", ranks: 2, programs: []func(rank){
		adjacent, partialOverlap, storeOfAllBeforeStoreOfPart, accumulatesOfSameElements, accumulatesOfDisplacedElements, accumulatesOfTwoTypesOfOneSize, fetchedByTwoTypes,
	}},
	{category: "overlap and element types", ranks: 3, programs: []func(rank){
		locksOfOverlappingWindows, barrierBetweenOverlappingWindows, accumulatesOfTwoTypes, getIntoOwnWindow, getIntoOwnWindowLater,
	}},
	{category: "completion", ranks: 3, programs: []func(rank){
		requestIsNotRemoteCompletion, requestAndFlush, putAfterFetchedRequest, requestOfAccumulate, requestsOfAll, fenceOfOtherWindowAsFlush,
		completeAndMessageToThird, waitAndMessageToThird,
	}},
	{category: "assertions, sync, test", ranks: 2, programs: []func(rank){
		syncAndBarrier, syncWithoutBarrier, storeBeforeOpeningFence, openingFenceAsBarrier, fenceOfOtherWindowAsBarrier, storeBeforePost,
		testInsteadOfWait, testWithoutSuccess, wrongNoPrecede, uncheckedStart, uncheckedStartAfterMessage, memoryOfFreedWindow,
	}},
	{category: "locks", ranks: 2, programs: []func(rank){
		exclusiveLockOfOriginOnly, flagUnderExclusiveLock, flagNotRead, storeBeforeStoreUnderLock,
	}},
	{category: "locks", ranks: 3, programs: []func(rank){uncheckedLocks, uncheckedLocksAndBarrier}},
	{category: "code shape", ranks: 2, programs: []func(rank){deepCalls}},
	{category: "buffers of messages", ranks: 2, programs: []func(rank){
		storeToSentBuffer, loadOfSentBuffer, loadOfReceiveBuffer, twoReceivesIntoOneBuffer, bufferedSendIsFree, persistentSend, persistentSendActive,
		getIntoSentBuffer,
	}},
	{category: "buffers of collectives", ranks: 2, programs: []func(rank){
		storeToBroadcastBuffer, loadOfBroadcastBuffer, loadOfUnfinishedResult, gatherRootOnly, gapsBetweenBlocks, storeToBlock, putInWindowOfCollective,
	}},
	{category: "order by messages", ranks: 2, programs: []func(rank){afterSynchronousSend, afterSecondMessage, afterSecondMessageProbed}},
	{category: "order by messages", ranks: 2, programs: []func(rank){afterStandardSend}, shared: "after"},
	{category: "order by messages", ranks: 2, programs: []func(rank){afterFirstMessage, afterFirstMessageProbed}, shared: "twoMessages"},
	{category: "order by messages", ranks: 4, programs: []func(rank){afterChain}},
	{category: "order by messages", ranks: 4, programs: []func(rank){afterBrokenChain}, shared: "after"},
	{category: "order by collectives", ranks: 2, programs: []func(rank){
		afterBcast, afterScatter, afterGather, afterReduce, afterAllreduce, afterAllgather, afterAlltoall, afterScan, afterExscan, afterIbarrier,
		scanBackwards, beforeWaitOfIbarrier, putAfterIbarrier,
	}},
	{category: "order by collectives", ranks: 2, programs: []func(rank){
		afterBcastOfOther, afterEmptyBcast, afterScatterOfOther, afterGatherOfOther, afterReduceOfOther,
	}, shared: "after"},
	{category: "order by collectives", ranks: 4, programs: []func(rank){afterBarrierOfPart}},
	{category: "order by collectives", ranks: 4, programs: []func(rank){afterBarrierOfOtherParts}, shared: "after"},
}

// Every race of the programs that were labelled by hand is found with both lines, and nothing else.
func testWritten(t *testing.T) {
	for _, group := range written {
		for _, program := range group.programs {
			name, lines := markedLines(program, group.shared)
			v, text := judge(simulate(t, group.ranks, program), lines)
			count(t, group.category, name, v, text)
		}
	}
}
