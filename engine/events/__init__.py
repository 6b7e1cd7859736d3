"""What the engine says. Frozen, small, complete: numbers and text only, units in the names.

Everything a view shows about a run comes from these, and a replay file is these written down, so a view cannot
tell a live run from a replayed one. Views import what they need from here.
"""

from __future__ import annotations

from engine.blind import NO_PREFERENCE as NO_PREFERENCE
from engine.blind import BlindRound as BlindRound
from engine.blind import BlindTest as BlindTest
from engine.blind import Pair as Pair
from engine.blind import new_seed as new_seed
from engine.events.answers import Answered as Answered
from engine.events.answers import EngineError as EngineError
from engine.events.answers import ExperimentProgress as ExperimentProgress
from engine.events.answers import KernelProgress as KernelProgress
from engine.events.answers import KernelRow as KernelRow
from engine.events.answers import KernelSurvey as KernelSurvey
from engine.events.loading import LOAD_STAGES as LOAD_STAGES
from engine.events.loading import Fact as Fact
from engine.events.loading import KernelFigure as KernelFigure
from engine.events.loading import Loaded as Loaded
from engine.events.loading import LoadProgress as LoadProgress
from engine.events.loading import PlacedPart as PlacedPart
from engine.events.loading import SessionFacts as SessionFacts
from engine.events.loading import Unloaded as Unloaded
from engine.events.models import DownloadEnd as DownloadEnd
from engine.events.models import DownloadProgress as DownloadProgress
from engine.events.models import FileSet as FileSet
from engine.events.models import HubModel as HubModel
from engine.events.models import HubOffer as HubOffer
from engine.events.models import ModelChoice as ModelChoice
from engine.events.models import Unfinished as Unfinished
from engine.events.plans import Estimate as Estimate
from engine.events.plans import OffloadPrice as OffloadPrice
from engine.events.plans import OffloadRow as OffloadRow
from engine.events.plans import Plan as Plan
from engine.events.plans import PlannedDevice as PlannedDevice
from engine.events.readings import GpuReading as GpuReading
from engine.events.readings import MemoryReading as MemoryReading
from engine.events.running import END_REASONS as END_REASONS
from engine.events.running import FILTERS as FILTERS
from engine.events.running import STAGES as STAGES
from engine.events.running import CacheKept as CacheKept
from engine.events.running import Candidate as Candidate
from engine.events.running import CutBy as CutBy
from engine.events.running import EndToken as EndToken
from engine.events.running import PrefillProgress as PrefillProgress
from engine.events.running import PromptPreview as PromptPreview
from engine.events.running import PromptToken as PromptToken
from engine.events.running import RunEnd as RunEnd
from engine.events.running import RunStart as RunStart
from engine.events.running import SettingsChanged as SettingsChanged
from engine.events.running import StageFigures as StageFigures
from engine.events.running import TokenEvent as TokenEvent
from engine.events.xrays import Xray as Xray
from engine.events.xrays import XrayProgress as XrayProgress
from engine.events.xrays import XraySide as XraySide
from engine.events.xrays import XrayToken as XrayToken
from engine.experiments import FIGURES as FIGURES
from engine.experiments import MOST_RUNS as MOST_RUNS
from engine.experiments import TEXT_FIGURES as TEXT_FIGURES
from engine.experiments import USUAL_BATCH as USUAL_BATCH
from engine.experiments import Asked as Asked
from engine.experiments import BlindQuestion as BlindQuestion
from engine.experiments import BlindTexts as BlindTexts
from engine.experiments import Luck as Luck
from engine.experiments import LuckFigure as LuckFigure
from engine.experiments import LuckQuestion as LuckQuestion
from engine.experiments import Mean as Mean
from engine.experiments import RunFigures as RunFigures
from engine.experiments import Sweep as Sweep
from engine.experiments import SweepAxis as SweepAxis
from engine.experiments import SweepQuestion as SweepQuestion
from engine.experiments import SweepRun as SweepRun
from engine.experiments import SweepsQuestion as SweepsQuestion
from engine.experiments import values_named as values_named
from engine.futures import FirstWord as FirstWord
from engine.futures import Future as Future
from engine.futures import Futures as Futures
from engine.futures import Node as Node
from engine.futures import different as different
from engine.futures import effective_number as effective_number
from engine.futures import scatter as scatter
from engine.futures import shared_tokens as shared_tokens
from engine.futures import tree_of as tree_of
from engine.futures import words_of as words_of
from engine.inside import BINS as BINS
from engine.inside import CodeFile as CodeFile
from engine.inside import Histogram as Histogram
from engine.inside import HistogramQuestion as HistogramQuestion
from engine.inside import Leaf as Leaf
from engine.inside import Module as Module
from engine.inside import Outline as Outline
from engine.inside import OutlineQuestion as OutlineQuestion
from engine.inside import ShardRead as ShardRead
from engine.inside import TensorRow as TensorRow
from engine.inside import TrustQuestion as TrustQuestion
from engine.inside import WeightsQuestion as WeightsQuestion
from engine.inside import WeightsTable as WeightsTable
from engine.notes import Mark as Mark
from engine.ordered import ORDERED as ORDERED
from engine.ordered import OrderedFilters as OrderedFilters
from engine.ordered import OrderQuestion as OrderQuestion
from engine.ordered import TwoOrders as TwoOrders
from engine.redecided import CUT_OPEN as CUT_OPEN
from engine.redecided import ELSEWHERE as ELSEWHERE
from engine.redecided import NOT_CUT as NOT_CUT
from engine.redecided import OPEN as OPEN
from engine.redecided import STANDS as STANDS
from engine.redecided import Redecided as Redecided
from engine.redecided import Tail as Tail
from engine.sizes import NOT_WEIGHTS as NOT_WEIGHTS
from engine.sizes import DeviceLimit as DeviceLimit
from engine.sizes import FitAnswer as FitAnswer
from engine.sizes import FitChange as FitChange
from engine.sizes import LedgerPart as LedgerPart
from engine.sizes import ModelPart as ModelPart
from engine.sizes import ModelSizes as ModelSizes
from engine.words import TokenNames as TokenNames
from engine.words import WordForm as WordForm
from engine.words import WordsQuestion as WordsQuestion
from engine.words import WordTokens as WordTokens

Event = (
    LoadProgress
    | Loaded
    | Unloaded
    | RunStart
    | PrefillProgress
    | TokenEvent
    | SettingsChanged
    | RunEnd
    | CacheKept
    | EngineError
    | MemoryReading
    | XrayProgress
    | Xray
    | Outline
    | ShardRead
    | WeightsTable
    | TrustQuestion
    | Answered
    | ExperimentProgress
    | KernelProgress
    | Mark
)
