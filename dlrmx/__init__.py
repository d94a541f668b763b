"""dlrmx trains deep-learning recommendation models whose embedding tables do not fit on one device.

    recipe.yaml -> Recipe -> Plan -> job (torchx AppDef) -> run directory -> report

The map: every module and its one job, in the order of the flow. docs/architecture.md tells the story.

    errors.py                 the errors a user can meet, and their exit codes
    units.py                  how numbers are shown: bytes, counts, durations, metrics

recipe/: what to train. No torch.

    recipe/schema.py          the recipe: every setting, its meaning, its default, and whether a resume may change it
    recipe/samples.py         its settings of data, features and tables
    recipe/training.py        its settings of model, optimizers, sharding, exchange, checkpoints
    recipe/settings.py        what all settings share; distances in steps, epochs, minutes
    recipe/load.py            file, overrides and profile become one valid value, or all problems at once
    recipe/generate.py        tables and features drawn from distributions
    recipe/yaml_file.py       YAML with 1.2 scalars, and the line of each key
    recipe/overrides.py       `-s a.b.c=value`
    recipe/clusters.py        cluster profiles by name, and what one means
    recipe/node.py            what a profile says of its nodes, for the planner
    recipe/profiles.py        the settings of a profile, by scheduler
    recipe/sbatch.py          what may be said to sbatch
    recipe/pods.py            what a Kubernetes profile says of its pods
    recipe/kubernetes.py      rules of a Kubernetes profile
    recipe/rules.py           rules that span several settings
    recipe/notes.py           what a valid recipe says that may surprise
    recipe/unread.py          settings that would never be read: each is an error
    recipe/explain.py         what pydantic found, in plain words
    recipe/names.py           near misses: what a mistyped name was probably meant to be
    recipe/tree.py            the schema as a tree: what there is at a place
    recipe/fingerprint.py     which settings a resume may not change
    recipe/reference.py       docs/recipe.md and the JSON Schema, generated

plan/: which rank holds which rectangle of which table. Pure arithmetic.

    plan/topology.py          memory, bandwidths and rates of each rank, by kind of node
    plan/shards.py            the plan's values: strips, rectangles, tables; their JSON form
    plan/prediction.py        what a plan is predicted to cost: bytes, seconds, traffic
    plan/planner.py           decides how each table is cut and where it lies: enumerate, cost, place, choose
    plan/facts.py             what is known of the data, and what is taken where nothing is
    plan/workload.py          what a step asks of each table: ids, bags, rows met, skew
    plan/forms.py             the forms that tables may take: cut, tier, route
    plan/options.py           each table in each form, costed
    plan/style.py             how vectors and gradients travel: the exchange that is predicted
    plan/rates.py             seconds per byte of memory and links
    plan/pieces.py            what a rectangle costs: seconds by stage, bytes by tier and link
    plan/spread.py            strips as arrays, and what they add up to on each rank
    plan/choose.py            a form for each table, at a price for memory
    plan/cut.py               tables cut in the forms chosen, and what each strip costs
    plan/arrange.py           from cut tables to a plan: deal out, place
    plan/place.py             things on bins: greedy, largest differencing, local search
    plan/even.py              exchanges things so that each stretch of a step is even
    plan/refine.py            splits tables of the most loaded ranks where that evens the load
    plan/cost.py              predicts a plan: memory, time, traffic
    plan/samples.py           small models that a machine trains while it is measured
    plan/calibrate.py         constants of a machine, from the steps of these
    plan/memory.py            bytes of tables, of the dense part, of batches read ahead
    plan/impossible.py        why no plan fits, and ways out that were tried
    plan/load.py              a plan file that a recipe names
    plan/validate.py          whether a plan is one for this recipe and number of ranks

data/: from files to batches by row number. numpy, no torch.

    data/prepare.py           prepares a recipe's data, once for all runs that share it
    data/survey.py            a bounded sample of files, for a recipe to be drafted from
    data/criteo_sample.py     a sample of Criteo's files as they are downloaded
    data/column_facts.py      what a sampled column holds
    data/draft.py             what each surveyed column is for: label, dense, feature, or left out
    data/draft_text.py        a draft as the text of a recipe
    data/pieces.py            prepares files piece by piece: survey, count, write
    data/work.py              the tasks of a preparation, and their results in a work folder
    data/claims.py            who does what, where several processes prepare the same data
    data/share.py             our share of the tasks
    data/pool.py              runs tasks on all cores
    data/worker.py            a process that prepares pieces
    data/merge.py             joins prepared datasets into one
    data/source.py            what preparation asks of a kind of files
    data/synthetic.py         synthetic data: Zipf ids, labels drawn from a planted teacher
    data/teacher.py           the planted teacher: the true log-odds of a sample
    data/zipf.py              Zipf-distributed ranks
    data/tabular.py           the rows of CSV, TSV and Parquet files, streamed
    data/criteo.py            the rows of files in Criteo's layout
    data/criteo_lines.py      the lines of Criteo's files, cut into fields
    data/criteo_values.py     fields of Criteo's files as numbers
    data/key_ids.py           from 64-bit keys to ids
    data/dense.py             the transform of dense columns
    data/files.py             which files a recipe names, in reading order
    data/csv_lines.py         the lines of CSV files, and a quoted field that runs over the end of one
    data/tables.py            record batches from files, every error by file and row
    data/fields.py            columns as numbers or as bags of values, checked
    data/faults.py            what becomes of rows that cannot be read
    data/numbers.py           from whole numbers to ids
    data/vocabulary.py        from texts to ids: by hash, or by what training met
    data/vocabulary_files.py  vocabularies beside prepared data
    data/hashing.py           the stable hashes of integers and texts
    data/permute.py           keyed bijections: they spread ids over rows, and shuffle samples
    data/splits.py            which split a row belongs to
    data/writer.py            writes a prepared dataset, part by part
    data/expand.py            multi-hot features made of one-hot ones
    data/output.py            files of prepared data, with size and sum; results that come by a rename
    data/lookups.py           how often the rows of a table are looked up
    data/hot_rows.py          the rows that take most look-ups, and how much they take
    data/columns.py           the columns of prepared data, in memory or memory-mapped
    data/row_names.py         what stands behind rows of a table
    data/fit.py               whether a recipe fits prepared data
    data/nearby.py            why a recipe has no prepared data
    data/manifest.py          what is in a prepared dataset, and its checksums
    data/batches.py           batches by row number
    data/predictions.py       scores as a Parquet file
    data/order.py             the order of rows in an epoch: a pure function of (seed, epoch, position)
    data/movielens.py         fetches MovieLens-100K

runs/: the run directory, where launcher and worker meet. No torch.

    runs/layout.py            the names of all files of a run
    runs/lines.py             JSON lines that only grow
    runs/events.py            what happened in an attempt
    runs/records.py           what was measured: steps and evaluations
    runs/costs.py             what a step took, beside what was predicted
    runs/run_file.py          run.json: what a run is and how it ended
    runs/claim.py             who owns what: run names, attempt numbers, the lock
    runs/registry.py          finds runs from any shell and folder
    runs/state.py             what a run is doing or how it ended, from its files alone
    runs/diagnosis.py         the fault that came first, and of what kind it is
    runs/kinds.py             kinds of failures: how each is known, and what to try

launch/: from a plan to running workers. torchx is imported here alone.

    launch/job.py             what a job was asked to do; travels in one environment variable
    launch/app.py             the torchx AppDef of a job
    launch/local.py           the torchx scheduler of this machine
    launch/kubernetes.py      the torchx scheduler of Kubernetes clusters
    launch/kube_phases.py     what a Kubernetes job is doing, and why it waits or failed
    launch/telling.py         tells a run's files through the node process's output
    launch/mirror.py          a copy of a run that this machine cannot see, made of what it tells
    launch/manifest.py        a job as Kubernetes objects
    launch/manifest_yaml.py   Kubernetes objects as YAML
    launch/strategic_merge.py lays a patch over a pod, as kubectl does
    launch/kube_api.py        requests to a Kubernetes API server
    launch/kube_errors.py     what it refuses, in plain words
    launch/submit.py          submits a job, shows it unsubmitted, cancels it
    launch/remote.py          a job on a cluster, from submission to its end
    launch/slurm.py           the torchx scheduler of Slurm clusters
    launch/slurm_script.py    the script of a Slurm job
    launch/slurm_state.py     what a Slurm job is doing, from what Slurm's commands print
    launch/slurm_commands.py  Slurm's commands, and words for what goes wrong with them
    launch/node.py            the node process, the one command of every job: drives attempts to the end
    launch/place.py           which node of a job this process is
    launch/crew.py            the nodes that node 0 leads
    launch/member.py          the node process of any node but the first
    launch/link.py            a connection between two node processes
    launch/opening.py         the run of a job, created or taken up
    launch/inputs.py          what an attempt is given: data, plan, checkpoint
    launch/agent.py           one torch.distributed.run, watched
    launch/stopping.py        why and when a node process is to stop
    launch/outcome.py         what became of an attempt
    launch/retry.py           whether a failed run is tried again
    launch/measure.py         has a cluster measured by workers of its own, and writes its profile
    launch/doctor.py          whether a machine can do its part in a job
    launch/errand.py          a module of ours on a cluster's nodes, by a job of its own
    launch/examine.py         asks a cluster's scheduler, and each of its nodes by a job of its own
    launch/processes.py       processes as /proc shows them

model/: plain single-process torch.

    model/build.py            the model that a recipe names, with its initial values
    model/dlrm.py             DLRM
    model/dcnv2.py            DLRM-DCNv2
    model/mlp.py              the multilayer perceptron that both use
    model/initial.py          initial table values: a hash, the same bits for any slice

parallel/: applies a plan to a model.

    parallel/layout.py        where everything lies: which fused table holds which rectangle at which row
    parallel/hops.py          to which ranks ids go: straight, or by way of one rank of a node
    parallel/routing.py       which id goes to which rank, as which row
    parallel/packing.py       how rows of several fused tables lie in one message
    parallel/codec.py         wire formats: fp32, fp16, bf16, int8, int4, sign
    parallel/coded_sum.py     a sum over all ranks in a wire format
    parallel/wire.py          every collective on training data, counted
    parallel/shared.py        messages and sums among ranks of one machine, through memory that they share
    parallel/meeting.py       finds out whether ranks can share memory, and connects them
    parallel/pages.py         hints to glibc and Linux about the pages of a worker's memory
    parallel/carrier.py       counts, ids, vectors and gradients over one hop
    parallel/chunks.py        a rank's batch in chunks, so that one's vectors travel under the work on another
    parallel/exchange.py      the rectangle exchange: ids out, vectors back, gradients, update
    parallel/fused.py         one fbgemm table that holds rectangles one under the other
    parallel/replicated.py    replicated tables (data_parallel)
    parallel/embeddings.py    all embedding tables of one rank
    parallel/dense.py         the dense part: one flat buffer, one all-reduce a step
    parallel/sparse_sum.py    of the dense gradients only entries over a threshold travel (DCT)
    parallel/largest.py       the k-th largest of values on many ranks
    parallel/sparse_code.py   entries over a threshold as bytes: values and places
    parallel/sparse_vectors.py  of pooled vectors and their gradients only large entries travel (DCT)
    parallel/sparse_hop.py    one hop where only entries over a threshold travel

train/: the worker.

    train/worker.py           the worker process, one per rank
    train/session.py          what a worker works on
    train/build.py            builds what a rank trains with
    train/selftest.py         whether torch and fbgemm work here
    train/measure.py          measures what the planner counts on, with real workers
    train/sample.py           trains the planner's small models, and says what each stage took
    train/loop.py             the training loop, top to bottom
    train/stages.py           how long each stage of a step takes
    train/step.py             one training step, stage by stage
    train/ahead.py            reads the next batches in a thread while one is worked on
    train/stream.py           which rows make up the global batch at a position
    train/schedule.py         the learning rates' schedule
    train/evaluate.py         every row of a split once, over all ranks
    train/by_file.py          metrics file by file
    train/histogram.py        metrics in bounded memory, with the bound of their error
    train/metrics.py          NE, AUC, calibration and their like, exact
    train/steplog.py          records of the steps, joined on rank 0
    train/saver.py            when checkpoints are written and which are kept
    train/persist.py          what a checkpoint holds of this rank, and how it is put back

checkpoint/: atomic, verified, any plan to any plan. torch in write and read alone.

    checkpoint/manifest.py    which tensors, in which rectangles of which files, and the run's state
    checkpoint/write.py       saves from all ranks at once
    checkpoint/publish.py     sizes, manifest, rename
    checkpoint/read.py        reads tensors in any slices
    checkpoint/verify.py      finds what is wrong, by name
    checkpoint/retain.py      which checkpoints there are, which to resume from, which to delete
    checkpoint/show.py        describes a checkpoint

cli/: the Typer app, installed as dlrmx_cli. Verbs and rendering only.

    cli/main.py               the app: every verb under its heading, and how errors end it
    cli/options.py            the arguments and options that verbs share
    cli/output.py             results on stdout, messages on stderr
    cli/train.py              train, resume, evaluate
    cli/start.py              from a recipe to a job that can be submitted
    cli/again.py              from a run to a recipe that goes on with it
    cli/attached.py           starts a job and stays with it
    cli/init.py               init
    cli/other_files.py        files that a trained model is to score
    cli/preview.py            check
    cli/plan.py               plan
    cli/planned.py            a plan with all that is said of it
    cli/plan_text.py          how a plan is shown
    cli/plan_scaling.py       what more nodes would bring
    cli/plan_compare.py       two plans side by side
    cli/data.py               data prepare, data show
    cli/data_text.py          how prepared data look
    cli/runs.py               runs, status, watch, logs, report, cancel
    cli/cluster_runs.py       the runs of a cluster, as its scheduler and their files have them
    cli/summary.py            what is said of a run at rest
    cli/failure.py            what is said of a run that failed
    cli/report.py             the evaluations of runs side by side
    cli/follow.py             hands what a run writes to a view, in order
    cli/progress.py           what is known of a running attempt
    cli/live.py               how a run looks while it is followed
    cli/recipes.py            recipes list, show, copy, schema
    cli/checkpoints.py        checkpoints list, show, verify, prune
    cli/doctor.py             doctor
    cli/clusters.py           clusters list, show
"""

__version__ = "0.1.0"
